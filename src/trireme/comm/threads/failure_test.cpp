#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include "trireme/comm/threads/world.h"

namespace trireme::comm::threads {
namespace {

using Seconds = std::chrono::duration<double>;

// What run() threw.
template <class Body>
std::string failure_of(int ranks, const WorldOptions& options, Body&& body) {
  try {
    run(ranks, options, body);
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

// With how long it waited ("waited 60.0 s", "waited 200 ms") left out.
std::string timeless(std::string message) {
  constexpr std::string_view kWaited = "waited ";
  for (std::size_t at = 0; (at = message.find(kWaited, at)) != std::string::npos; at += kWaited.size()) {
    const std::size_t number = at + kWaited.size();
    const std::size_t unit = message.find_first_not_of("0123456789.", number);
    if (unit == number || unit == std::string::npos || message[unit] != ' ') continue;
    const std::size_t end = message.find_first_not_of("ms", unit + 1);
    message.erase(number - 1, (end == std::string::npos ? message.size() : end) - number + 1);
  }
  return message;
}

// Ways in which a rank can be waiting for rank 0, which never comes.
using Blocked = void (*)(Communicator&);
constexpr Blocked kBlocked[] = {
    [](Communicator& c) { c.barrier(); },
    [](Communicator& c) {
      std::vector<float> small(10);
      c.all_reduce(std::span(small), Reduce::sum);
    },
    [](Communicator& c) {
      std::vector<float> large(100'000);
      c.all_reduce(std::span(large), Reduce::sum);
    },
    [](Communicator& c) {
      std::vector<float> large(100'000);
      c.all_reduce(std::span(large), Reduce::sum, {.algorithm = Algorithm::ring});
    },
    [](Communicator& c) {
      std::vector<float> large(100'000);
      c.all_reduce(std::span(large), Reduce::sum, {.algorithm = Algorithm::parallel});
    },
    [](Communicator& c) {
      std::vector<float> large(100'000);
      const Segment segment{large.data(), 100'000};
      c.start_all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum, {.algorithm = Algorithm::recursive}).wait();
    },
    [](Communicator& c) {
      std::vector<std::byte> message(100'000);
      c.recv(message, 0);
    },
    [](Communicator& c) {
      const std::vector<std::byte> message(100'000);
      c.send(message, 0);
    },
    [](Communicator& c) { c.split(0); },
};

TEST(Failure, AThrowingRankEndsTheOthers) {
  for (const Blocked blocked : kBlocked) {
    std::atomic<int> aborted{0};
    std::chrono::steady_clock::time_point thrown;
    const std::string message = failure_of(4, {}, [&](Communicator& comm) {
      if (comm.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        thrown = std::chrono::steady_clock::now();
        fail("the disk is full");
      }
      try {
        blocked(comm);
      } catch (const Aborted& e) {
        EXPECT_EQ(e.message(), "rank 0 gave up: the disk is full");
        ++aborted;
        EXPECT_THROW(comm.barrier(), Aborted);
        throw;
      }
    });
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - thrown).count(), 2);
    EXPECT_EQ(message, "rank 0: the disk is full");
    EXPECT_EQ(aborted, 3);
  }
}

TEST(Failure, ATimeoutNamesWhoWaitsForWhom) {
  std::atomic<bool> over{false};
  const std::string message = timeless(failure_of(3, {.link = "", .timeout = 1}, [&](Communicator& comm) {
    std::vector<float> v(5000);
    if (comm.rank() == 0) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      if (comm.rank() == 2)
        comm.recv(std::as_writable_bytes(std::span(v)), 1, 7);
      else
        comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = Algorithm::ring, .name = "grads.3"});
    } catch (...) {
      over = true;
      throw;
    }
  }));
  // Whose patience ended first is a matter of luck.
  const std::string by_two =
      "rank 2: rank 2 waited for rank 1 in point to point; rank 0 waits for nobody; rank 1 waits for rank 0 in "
      "all_reduce \"grads.3\" (ring, step 1)";
  const std::string by_one =
      "rank 1: rank 1 waited for rank 0 in all_reduce \"grads.3\" (ring, step 1); rank 0 waits for nobody; rank 2 "
      "waits "
      "for rank 1 in point to point";
  EXPECT_TRUE(message == by_two || message == by_one) << message;
}

// More seconds than a clock counts are a long time, not none.
TEST(Failure, ATimeoutMayBeLongerThanAClockCounts) {
  for (const double seconds : {9e9, 1e10, 1.728e10, 1e99, std::numeric_limits<double>::infinity()})
    EXPECT_EQ(failure_of(2, {.timeout = seconds},
                         [](Communicator& c) {
                           if (c.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(120));
                           c.barrier();
                         }),
              "nothing was thrown")
        << seconds;
}

TEST(Failure, ATimeoutNamesAllThatAreMissing) {
  std::atomic<bool> over{false};
  const std::string message = failure_of(4, {.link = "", .timeout = 0.2}, [&](Communicator& comm) {
    if (comm.rank() != 3) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    std::vector<float> v(5000);
    try {
      comm.all_reduce(std::span(v), Reduce::sum);
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_EQ(timeless(message),
            "rank 3: rank 3 waited for ranks 0, 1, 2 in all_reduce (native); rank 0 waits for nobody; rank 1 waits for "
            "nobody; rank 2 waits for nobody");
}

TEST(Failure, RanksThatDisagreeAreNamed) {
  for (const std::size_t large : {1, 1000}) {
    const std::string message = failure_of(2, {.link = "", .timeout = 5}, [&](Communicator& comm) {
      std::vector<float> v(large * (comm.rank() == 0 ? 10 : 11));
      comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = Algorithm::native});
    });
    EXPECT_NE(message.find("same collectives in the same order"), std::string::npos) << message;
  }
  const std::string message = failure_of(2, {.link = "", .timeout = 5}, [&](Communicator& comm) {
    std::vector<float> v(100);
    if (comm.rank() == 0)
      comm.send(std::as_bytes(std::span(v)), 1);
    else
      comm.recv(std::as_writable_bytes(std::span(v).first(99)), 0);
    comm.barrier();
  });
  EXPECT_NE(message.find("rank 0 sent 400 bytes to rank 1, which expected 396"), std::string::npos) << message;
}

TEST(Failure, AnAbortFromOutside) {
  World world(2);
  Communicator comm = world.communicator(0);
  std::thread outside([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.abort("interrupted");
  });
  EXPECT_THROW(comm.barrier(), Aborted);
  outside.join();
}

// Ranks die at any moment, also while others read and write their memory, which is gone at once. Best under a
// sanitizer.
TEST(Failure, AHundredRandomDeaths) {
  std::mt19937 random(7);
  for (int death = 0; death < 100; ++death) {
    const int ranks = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const auto calls = random() % 12;
    const auto delay = std::chrono::microseconds(random() % 300);
    const std::string message = failure_of(ranks, {.link = "", .timeout = 10}, [&](Communicator& comm) {
      for (unsigned k = 0;; ++k) {
        if (comm.rank() == victim && k == calls) {
          std::this_thread::sleep_for(delay);
          fail("dead");
        }
        std::vector<float> v(k % 3 == 0 ? 200 : 20'000, 1.0F);
        std::vector<float> w(v);
        const Segment segment{w.data(), static_cast<std::int64_t>(w.size())};
        Request request = comm.start_all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum,
                                                {.algorithm = k % 2 == 0 ? Algorithm::ring : Algorithm::native});
        comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = static_cast<Algorithm>(1 + k % 6)});
        request.wait();
      }
    });
    EXPECT_EQ(message, fmt::format("rank {}: dead", victim));
  }
}

}  // namespace
}  // namespace trireme::comm::threads
