#include <gtest/gtest.h>
#include <trireme/trireme.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace {

using Values = std::vector<float>;

constexpr int kSteps = 6;
constexpr float kRate = 0.25F;

void descend(int, std::span<float> values, std::span<const float> gradient) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= kRate * gradient[i];
}

// Each worker pulls towards a target of its own.
Values gradient_of(const Values& values, int worker) {
  Values gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) gradient[i] = values[i] - static_cast<float>(worker + 1);
  return gradient;
}

const std::vector<Values> kFirst = {{1, 2, 3, 4, 5}, {-1}, {0.5F, 8}};

// What workers have after `kSteps` steps, by worker.
std::vector<std::vector<Values>> trained(int ranks, const tri::ServerOptions& options) {
  std::vector<std::vector<Values>> ends(static_cast<std::size_t>(ranks - options.servers));
  tri::run_ranks(ranks, [&](tri::Communicator& comm) {
    tri::ParameterServer ps(comm, kFirst, options);
    if (ps.serves()) return ps.serve(kSteps, descend);
    std::vector<Values> values = kFirst;
    for (int step = 0; step < kSteps; ++step) {
      // In any order.
      for (int i = 2; i >= 0; --i) ps.push(i, gradient_of(values[static_cast<std::size_t>(i)], comm.rank()));
      for (int i = 0; i < 3; ++i) values[static_cast<std::size_t>(i)] = ps.pull(i);
    }
    ends[static_cast<std::size_t>(comm.rank())] = values;
  });
  return ends;
}

TEST(ParameterServer, TogetherIsDescentByTheSumOfAllGradients) {
  std::vector<Values> expected = kFirst;
  for (int step = 0; step < kSteps; ++step)
    for (Values& values : expected) {
      Values sum(values.size(), 0);
      for (int worker = 0; worker < 2; ++worker) {
        const Values one = gradient_of(values, worker);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
      }
      descend(0, values, sum);
    }
  for (const int servers : {1, 2, 3})
    for (const std::vector<Values>& end : trained(2 + servers, {.servers = servers}))
      EXPECT_EQ(end, expected) << servers << " servers";
}

// In whichever order: a value tells how many updates of each worker are in it, since their gradients are digits of
// different places. A worker has all of its own, and of the others' at most `bound` fewer.
TEST(ParameterServer, OneByOneUpdatesByEachGradient) {
  struct Case {
    const char* mode;
    int bound;
  };
  constexpr int kWorkers = 3;
  constexpr int kPlace = kSteps + 1;
  for (const auto& [mode, bound] : {Case{"async", kSteps}, Case{"ssp:0", 0}, Case{"ssp:2", 2}}) {
    std::array<std::array<int, kWorkers>, kWorkers> seen{};
    tri::run_ranks(kWorkers + 1, [&, mode = mode](tri::Communicator& comm) {
      tri::ParameterServer ps(comm, {{0}}, {.servers = 1, .mode = mode});
      if (ps.serves()) return ps.serve(kSteps, descend);
      int digit = 1;
      for (int w = 0; w < comm.rank(); ++w) digit *= kPlace;
      float value = 0;
      for (int step = 0; step < kSteps; ++step) {
        ps.push(0, Values{-static_cast<float>(digit) / kRate});
        value = ps.pull(0).front();
      }
      auto rest = static_cast<int>(value);
      for (int& count : seen[static_cast<std::size_t>(comm.rank())]) {
        count = rest % kPlace;
        rest /= kPlace;
      }
      EXPECT_EQ(rest, 0) << mode;
    });
    int complete = 0;
    for (std::size_t w = 0; w < kWorkers; ++w) {
      EXPECT_EQ(seen[w][w], kSteps) << mode;
      for (const int count : seen[w]) EXPECT_GE(count, kSteps - bound) << mode;
      complete += seen[w] == std::array{kSteps, kSteps, kSteps} ? 1 : 0;
    }
    EXPECT_GE(complete, 1) << mode;  // the last has them all
  }
}

TEST(ParameterServer, AFastWorkerWaitsForTheSlowestWithinItsBound) {
  std::array<std::atomic<int>, 2> begun{};
  tri::run_ranks(3, [&](tri::Communicator& comm) {
    tri::ParameterServer ps(comm, {{0}}, {.mode = "ssp:1"});
    if (ps.serves()) return ps.serve(kSteps, descend);
    const auto me = static_cast<std::size_t>(comm.rank());
    for (int step = 0; step < kSteps; ++step) {
      ++begun[me];
      if (me == 1 && step == 0) {
        // The other one does a step more than this one and begins the next, whose values it does not get.
        while (begun[0] < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(begun[0], 2);
      }
      ps.push(0, Values{1});
      ps.pull(0);
    }
  });
  EXPECT_EQ(begun[0], kSteps);
}

std::string refusal(const std::function<void()>& request) {
  try {
    request();
  } catch (const tri::Error& e) {
    return e.message();
  }
  return "nothing was refused";
}

TEST(ParameterServer, WhatIsOutOfOrderIsRefusedByItsIndex) {
  tri::run_ranks(2, [](tri::Communicator& comm) {
    tri::ParameterServer ps(comm, {{0}, {0, 0}});
    if (ps.serves()) {
      EXPECT_NE(refusal([&] { ps.push(0, Values{1}); }).find("push is for workers"), std::string::npos);
      ps.serve(1, descend);
      EXPECT_EQ(ps.values(1), (Values{-kRate, -kRate}));
      return;
    }
    EXPECT_NE(refusal([&] { ps.serve(1, descend); }).find("serve is for servers"), std::string::npos);
    EXPECT_NE(refusal([&] { ps.push(2, Values{1}); }).find("index 2"), std::string::npos);
    EXPECT_NE(refusal([&] { ps.push(1, Values{1}); }).find("has 2 values, got 1"), std::string::npos);
    ps.push(0, Values{1});
    EXPECT_NE(refusal([&] { ps.push(0, Values{1}); }).find("pushed already"), std::string::npos);
    EXPECT_NE(refusal([&] { ps.pull(0); }).find("index 1 was not pushed"), std::string::npos);
    ps.push(1, Values{1, 1});
    ps.pull(0);
    EXPECT_NE(refusal([&] { ps.pull(0); }).find("pulled already"), std::string::npos);
    EXPECT_NE(refusal([&] { ps.push(0, Values{1}); }).find("index 1 of the step before was not pulled"),
              std::string::npos);
    ps.pull(1);
  });
}

TEST(ParameterServer, RanksThatCannotBeServersAreRefused) {
  tri::run_ranks(2, [](tri::Communicator& comm) {
    const auto with = [&](const tri::ServerOptions& options) {
      return refusal([&] { tri::ParameterServer(comm, {{0}, {0}}, options); });
    };
    EXPECT_NE(with({.servers = 2}).find("2 servers of 2 ranks"), std::string::npos);
    EXPECT_NE(with({.mode = "ssp:x"}).find("ssp:2"), std::string::npos);
  });
}

}  // namespace
