#include "trireme/cli/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

namespace trireme::cli {

namespace {

constexpr std::array<ReductionText, 4> kTexts = {{{"alone", "one thread"},
                                                  {"racing", "all add to one number, unprotected"},
                                                  {"locked", "all add to one number, under a mutex"},
                                                  {"partial", "each adds up its own, then all once"}}};

}  // namespace

ReductionProblem::ReductionProblem(std::int64_t n, int m) : samples(n), features(m) {
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

double ReductionProblem::error(std::int64_t i) const {
  const float* row = x.data() + i * features;
  float sum = 0;
  for (int j = 0; j < features; ++j) sum += row[j] * w[static_cast<std::size_t>(j)];
  return std::abs(y[static_cast<std::size_t>(i)] - sum);
}
double ReductionProblem::exact() const {
  double sum = 0;
  for (std::int64_t i = 0; i < samples; ++i) sum += error(i);
  return sum;
}

const ReductionText& text_of(Reduction reduction) { return kTexts[static_cast<std::size_t>(reduction)]; }

std::string reduction_law(const ReductionFigures& f) {
  if (!f.right) return "a lock and partial sums give the sum of one thread ✗";
  std::vector<std::string> missing;
  if (f.lost < 0.0005) missing.emplace_back("that a race loses additions");
  if (f.locked <= f.alone) missing.emplace_back("that a lock makes threads take turns");
  if (f.partial >= f.alone) missing.emplace_back("that partial sums are faster");
  if (missing.empty())
    return fmt::format("partial sums: {:.2f} times as fast as one thread, and right; so is the lock, but slower ✓",
                       f.alone / f.partial);
  return fmt::format(
      "a lock and partial sums give the sum of one thread ✓; this machine is too busy, or too small, to show {}",
      fmt::join(missing, " and "));
}

ReductionOutcome reduce(const ReductionProblem& p, Reduction reduction, int threads) {
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
    switch (reduction) {
      case Reduction::alone:
      case Reduction::partial: {
        double mine = 0;
        for (std::int64_t i = begin; i < end; ++i) mine += p.error(i);
        const std::lock_guard lock(mutex);
        guarded += mine;
        break;
      }
      case Reduction::racing:
        // What `sum += …` does to a shared number, spelled out: between reading and writing another thread's addition
        // is lost. The accesses are atomic, the addition is not, so the answer is wrong but the program is not
        // undefined.
        for (std::int64_t i = begin; i < end; ++i)
          shared.store(shared.load(std::memory_order_relaxed) + p.error(i), std::memory_order_relaxed);
        break;
      case Reduction::locked:
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
  return {seconds.count(), reduction == Reduction::racing ? shared.load() : guarded};
}

}  // namespace trireme::cli
