#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

// How threads may add to one number: the mean absolute error of a linear model, Σ |y − w·x| / N, four ways.
namespace trireme::cli {
namespace {

struct ReduceArguments {
  std::int64_t samples = 1'000'000;
  int features = 16;
  std::vector<int> threads = {1, 2, 4};
  int repeats = 5;
  bool json = false;
};

struct Problem {
  std::int64_t samples;
  int features;
  std::vector<float> x;
  std::vector<float> y;
  std::vector<float> w;

  Problem(std::int64_t n, int m) : samples(n), features(m) {
    std::uint64_t state = 1;
    const auto uniform = [&] {
      state = state * 6364136223846793005U + 1442695040888963407U;
      return static_cast<float>(state >> 40) * 0x1p-23F - 1.0F;
    };
    x.resize(static_cast<std::size_t>(n * m));
    y.resize(static_cast<std::size_t>(n));
    w.resize(static_cast<std::size_t>(m));
    for (float& v : x) v = uniform();
    for (float& v : y) v = uniform();
    for (float& v : w) v = uniform();
  }

  double error(std::int64_t i) const {
    const float* row = x.data() + i * features;
    float sum = 0;
    for (int j = 0; j < features; ++j) sum += row[j] * w[static_cast<std::size_t>(j)];
    return std::abs(y[static_cast<std::size_t>(i)] - sum);
  }
};

enum class Variant { alone, racing, locked, partial };
constexpr std::array<Variant, 4> kVariants = {Variant::alone, Variant::racing, Variant::locked, Variant::partial};

struct Described {
  const char* name;
  const char* how;
};
constexpr std::array<Described, 4> kDescribed = {{{"alone", "one thread"},
                                                  {"racing", "all add to one number, unprotected"},
                                                  {"locked", "all add to one number, under a mutex"},
                                                  {"partial", "each adds up its own, then all once"}}};

struct Outcome {
  double seconds;
  double sum;
};

// One pass of `variant` over the data with `threads` threads: from the first that begins to the last that ends.
Outcome pass(const Problem& p, Variant variant, int threads) {
  std::atomic<double> shared{0};
  std::mutex mutex;
  double guarded = 0;
  std::barrier start(threads);
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> begun(static_cast<std::size_t>(threads));
  std::vector<Clock::time_point> ended(begun);
  std::vector<std::thread> workers;
  const auto work = [&](int t) {
    const std::int64_t begin = p.samples * t / threads;
    const std::int64_t end = p.samples * (t + 1) / threads;
    start.arrive_and_wait();
    begun[static_cast<std::size_t>(t)] = Clock::now();
    switch (variant) {
      case Variant::alone:
      case Variant::partial: {
        double mine = 0;
        for (std::int64_t i = begin; i < end; ++i) mine += p.error(i);
        const std::lock_guard lock(mutex);
        guarded += mine;
        break;
      }
      case Variant::racing:
        // What `sum += …` does to a shared number, spelled out: between reading and writing another thread's addition
        // is lost. The accesses are atomic, the addition is not, so the answer is wrong but the program is not
        // undefined.
        for (std::int64_t i = begin; i < end; ++i)
          shared.store(shared.load(std::memory_order_relaxed) + p.error(i), std::memory_order_relaxed);
        break;
      case Variant::locked:
        for (std::int64_t i = begin; i < end; ++i) {
          const double term = p.error(i);
          const std::lock_guard lock(mutex);
          guarded += term;
        }
        break;
    }
    ended[static_cast<std::size_t>(t)] = Clock::now();
  };
  workers.reserve(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) workers.emplace_back(work, t);
  for (std::thread& worker : workers) worker.join();
  const std::chrono::duration<double> seconds =
      *std::max_element(ended.begin(), ended.end()) - *std::min_element(begun.begin(), begun.end());
  return {seconds.count(), variant == Variant::racing ? shared.load() : guarded};
}

int bench_reduce(const ReduceArguments& a) {
  const Problem problem(a.samples, a.features);
  double exact = 0;
  for (std::int64_t i = 0; i < problem.samples; ++i) exact += problem.error(i);
  double alone_ms = 0;
  if (!a.json)
    fmt::print(
        "mean absolute error of {} samples × {} features: {:.6f}; median of {}\n\n{:<9}{:>8}{:>11}{:>10}{:>12}{:>10}\n",
        format_count(static_cast<std::uint64_t>(a.samples)), a.features, exact / static_cast<double>(a.samples),
        a.repeats, "variant", "threads", "time", "speed-up", "answer", "lost");
  for (const Variant variant : kVariants)
    for (const int threads : a.threads) {
      if ((variant == Variant::alone) != (threads == 1)) continue;
      std::vector<double> ms;
      std::vector<double> sums;
      for (int r = 0; r < a.repeats; ++r) {
        const Outcome outcome = pass(problem, variant, threads);
        ms.push_back(1e3 * outcome.seconds);
        sums.push_back(outcome.sum);
      }
      const double time = median(ms);
      const double sum = median(sums);
      if (variant == Variant::alone) alone_ms = time;
      const Described& d = kDescribed[static_cast<std::size_t>(variant)];
      const double answer = sum / static_cast<double>(a.samples);
      const double lost = 1 - sum / exact;
      if (a.json) {
        const nlohmann::ordered_json o = {{"variant", d.name},          {"threads", threads}, {"median_ms", time},
                                          {"speedup", alone_ms / time}, {"answer", answer},   {"lost", lost}};
        fmt::print("{}\n", o.dump());
      } else {
        fmt::print("{:<9}{:>8}{:>8.2f} ms{:>9.2f}×{:>12.6f}{:>9.1f}%  {}\n", d.name, threads, time, alone_ms / time,
                   answer, 100 * std::max(lost, 0.0), d.how);
      }
    }
  return 0;
}

}  // namespace

void add_bench_reduce(CLI::App& bench, Context& context) {
  auto a = std::make_shared<ReduceArguments>();
  CLI::App* command = bench.add_subcommand("reduce", "How threads may add to one number: four ways, timed and checked");
  command->add_option("--samples", a->samples, "Terms of the sum")->check(CLI::Range(1, 1 << 30));
  command->add_option("--features", a->features, "Work per term")->check(CLI::Range(1, 1 << 16));
  command->add_option("--threads", a->threads, "Thread counts; 1 is always among them")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--repeats", a->repeats, "Repetitions")->check(CLI::Range(1, 1000));
  command->add_flag("--json", a->json, "For scripts");
  command->footer("\nExample:\n  trireme bench reduce --threads 2,4,8\n");
  command->callback([&context, a] {
    context.run = [a] {
      a->threads.push_back(1);
      std::sort(a->threads.begin(), a->threads.end());
      a->threads.erase(std::unique(a->threads.begin(), a->threads.end()), a->threads.end());
      return bench_reduce(*a);
    };
  });
}

}  // namespace trireme::cli
