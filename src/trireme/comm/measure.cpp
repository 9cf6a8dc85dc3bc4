#include "trireme/comm/measure.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>

#include "trireme/comm/threads/state.h"
#include "trireme/comm/threads/world.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
// A bound is the best there is: it takes more looks than a median.
constexpr int kBoundBatches = 4;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Times batches of `call` on all ranks together; seconds per call, each batch as long as its slowest rank took.
template <class Call>
std::vector<double> time_batches(Communicator& comm, const MeasureOptions& options, Call&& call) {
  const auto batch = [&](std::int64_t calls) {
    comm.barrier();
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto slowest = [&](std::vector<double>& seconds) {
    comm.all_reduce(std::span(seconds), Reduce::max, {.algorithm = Algorithm::sequential});
  };
  // Once for cold pages and caches, then enough calls to fill a batch: as rank 0's clock says, for all.
  batch(1);
  std::int64_t calls = 1;
  for (;;) {
    std::vector<double> seconds = {batch(calls)};
    slowest(seconds);
    if (seconds[0] >= 0.5 * options.batch_seconds || calls >= (1 << 20)) break;
    calls *= 2;
  }
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(options.batches));
  for (int i = 0; i < options.batches; ++i) seconds.push_back(batch(calls) / static_cast<double>(calls));
  slowest(seconds);
  return seconds;
}

}  // namespace

void bind_to_core(int rank, int ranks) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0 || CPU_COUNT(&usable) < ranks) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
}

Law law_of(TransportKind transport, Algorithm algorithm, std::size_t bytes, std::size_t element, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  const auto s = static_cast<std::uint64_t>(bytes);
  if (ranks == 1 || bytes == 0) return {};
  const std::uint64_t largest = (s / element + n - 1) / n * element;  // chunk, where S does not divide
  switch (algorithm) {
    case Algorithm::sequential: return {2 * (n - 1), (n - 1) * s};
    case Algorithm::parallel: return {1, (n - 1) * s};
    case Algorithm::ring: return {2 * (n - 1), s % (n * element) == 0 ? 2 * (n - 1) * s / n : 2 * (n - 1) * largest};
    case Algorithm::recursive: {
      const std::uint64_t p = std::bit_floor(n);
      const auto rounds = static_cast<std::uint64_t>(std::bit_width(p) - 1);
      return {2 * rounds + (p == n ? 0 : 2), 2 * s * (p - 1) / p + (p == n ? 0 : s)};
    }
    case Algorithm::tree: {
      const auto depth = static_cast<std::uint64_t>(std::bit_width(n - 1));
      return {2 * depth, depth * s};
    }
    case Algorithm::automatic:
    case Algorithm::native: break;
  }
  if (transport == TransportKind::threads && bytes <= threads::kSmall) return {1, (n - 1) * s};
  return {transport == TransportKind::threads ? 2U : 1U, 2 * s * (n - 1) / n};
}

Measurement measure_all_reduce(Communicator& comm, Algorithm algorithm, std::size_t bytes,
                               const MeasureOptions& options) {
  std::vector<float> values(bytes / sizeof(float), 0.0F);
  const Segment segment{values.data(), static_cast<std::int64_t>(values.size())};
  const auto call = [&] { comm.all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum, {.algorithm = algorithm}); };
  comm.reset_counters();
  call();
  const Counters counters = comm.counters();
  std::vector<std::int64_t> most = {static_cast<std::int64_t>(counters.steps),
                                    static_cast<std::int64_t>(counters.sent)};
  comm.all_reduce(std::span(most), Reduce::max, {.algorithm = Algorithm::sequential});
  const std::vector<double> seconds = time_batches(comm, options, call);
  return {algorithm,
          values.size() * sizeof(float),
          1e6 * median_of(seconds),
          1e6 * *std::min_element(seconds.begin(), seconds.end()),
          static_cast<std::uint64_t>(most[0]),
          static_cast<std::uint64_t>(most[1])};
}

double measure_in_place(int ranks, std::size_t bytes, const MeasureOptions& options) {
  std::vector<double> best(static_cast<std::size_t>(ranks), 0);
  threads::run(ranks, {}, [&](Communicator& comm) {
    bind_to_core(comm.rank(), ranks);
    std::vector<float> own(bytes / sizeof(float), 1.0F);
    // By the thread's own clock: while another has its core it does nothing.
    const auto seconds = [] {
      timespec now{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    };
    const auto batch = [&](std::int64_t calls) {
      const double begin = seconds();
      for (std::int64_t i = 0; i < calls; ++i) {
        for (float& x : own) x += 1.0F;
        asm volatile("" : : "r"(own.data()) : "memory");  // every round is done
      }
      return (seconds() - begin) / static_cast<double>(calls);
    };
    const double once = batch(1);
    const auto calls = static_cast<std::int64_t>(std::clamp(options.batch_seconds / once, 1.0, 0x1p20));
    comm.barrier();
    double least = batch(calls);
    for (int i = 1; i < kBoundBatches * options.batches; ++i) least = std::min(least, batch(calls));
    best[static_cast<std::size_t>(comm.rank())] = least;
    comm.barrier();  // all are busy until all are done
  });
  // Ranks that share a core do their work one after another.
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const int cores = sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : ranks;
  return 1e6 * *std::min_element(best.begin(), best.end()) * std::max(1.0, static_cast<double>(ranks) / cores);
}

}  // namespace trireme::comm
