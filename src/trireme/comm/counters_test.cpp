#include <gtest/gtest.h>

#include <bit>

#include "trireme/comm/conformance.h"
#include "trireme/core/error.h"

// Counters against the laws of the algorithms, rank by rank.
namespace trireme::comm::conformance {
namespace {

struct Law {
  std::uint64_t steps, sent, received;
};

std::uint64_t log2_ceil(int n) { return static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(n - 1))); }

// S divides by every rank count, so that every chunk is equal.
Law law(Algorithm algorithm, int n, int rank, std::uint64_t s) {
  TRI_CHECK(n > 0, "there is no law for {} ranks", n);
  const auto ranks = static_cast<std::uint64_t>(n);
  switch (algorithm) {
    case Algorithm::sequential:
      if (rank == 0) return {2 * (ranks - 1), (ranks - 1) * s, (ranks - 1) * s};
      return {2, s, s};
    case Algorithm::parallel: return {1, (ranks - 1) * s, (ranks - 1) * s};
    case Algorithm::ring: return {2 * (ranks - 1), 2 * s * (ranks - 1) / ranks, 2 * s * (ranks - 1) / ranks};
    case Algorithm::recursive: {
      const std::uint64_t p = std::bit_floor(ranks);
      if (rank >= static_cast<int>(p)) return {2, s, s};
      const bool partner = rank + static_cast<int>(p) < n;
      const std::uint64_t halving = 2 * s * (p - 1) / p;
      const std::uint64_t steps = 2 * static_cast<std::uint64_t>(std::bit_width(p) - 1);
      return partner ? Law{steps + 2, halving + s, halving + s} : Law{steps, halving, halving};
    }
    default: break;
  }
  // tree: one message up and one down for every child, and for itself unless it is the root.
  std::uint64_t children = 0;
  for (int distance = 1; distance < n && (rank & distance) == 0; distance *= 2)
    if (rank + distance < n) ++children;
  const std::uint64_t links = children + (rank == 0 ? 0 : 1);
  return {2 * links, s * links, s * links};
}

constexpr std::int64_t kCount = 2520 * 2;  // divisible by 1 … 9

TEST(Counters, EqualTheLaws) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const Algorithm algorithm :
           {Algorithm::sequential, Algorithm::parallel, Algorithm::ring, Algorithm::recursive, Algorithm::tree}) {
        std::vector<float> v(kCount, 1.0F);
        comm.reset_counters();
        comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = algorithm});
        const Counters c = comm.counters();
        const Law want = n == 1 ? Law{0, 0, 0} : law(algorithm, n, comm.rank(), kCount * sizeof(float));
        EXPECT_EQ(c.steps, want.steps) << name_of(algorithm) << " rank " << comm.rank() << " of " << n;
        EXPECT_EQ(c.sent, want.sent) << name_of(algorithm) << " rank " << comm.rank() << " of " << n;
        EXPECT_EQ(c.received, want.received) << name_of(algorithm) << " rank " << comm.rank() << " of " << n;
      }
    });
}

std::vector<std::int64_t> summed(Communicator& comm, const Counters& c) {
  std::vector<std::int64_t> v = {static_cast<std::int64_t>(c.steps), static_cast<std::int64_t>(c.sent),
                                 static_cast<std::int64_t>(c.received), static_cast<std::int64_t>(c.messages)};
  std::vector<std::int64_t> most = {v[0]};
  comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = Algorithm::sequential});
  comm.all_reduce(std::span(most), Reduce::max, {.algorithm = Algorithm::sequential});
  v[0] = most[0];
  return v;
}

TEST(Counters, UnevenSizesAddUp) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      if (n == 1) return;
      const auto p = static_cast<std::int64_t>(std::bit_floor(static_cast<unsigned>(n)));
      for (const std::int64_t count : {1, 2, 13, 1009}) {
        const std::int64_t s = count * 4;
        const auto total = [&](Algorithm algorithm) {
          std::vector<std::int32_t> v(static_cast<std::size_t>(count), 1);
          comm.reset_counters();
          comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = algorithm});
          return summed(comm, comm.counters());
        };
        const std::vector<std::int64_t> ring = total(Algorithm::ring);
        EXPECT_EQ(ring, (std::vector<std::int64_t>{2 * (n - 1), 2 * s * (n - 1), 2 * s * (n - 1), 2 * n * (n - 1)}));
        const std::vector<std::int64_t> recursive = total(Algorithm::recursive);
        EXPECT_EQ(recursive[0], 2 * std::countr_zero(static_cast<std::uint64_t>(p)) + (n == p ? 0 : 2));
        EXPECT_EQ(recursive[1], 2 * s * (p - 1) + 2 * s * (n - p));
        EXPECT_EQ(recursive[2], recursive[1]);
        const std::vector<std::int64_t> tree = total(Algorithm::tree);
        EXPECT_EQ(tree, (std::vector<std::int64_t>{2 * static_cast<std::int64_t>(log2_ceil(n)), 2 * s * (n - 1),
                                                   2 * s * (n - 1), 2 * (n - 1)}));
        EXPECT_EQ(total(Algorithm::sequential)[1], 2 * s * (n - 1));
        EXPECT_EQ(total(Algorithm::parallel)[1], s * n * (n - 1));
      }
    });
}

TEST(Counters, SlicesMoveHalfAsMuch) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      if (n == 1) return;
      for (const Algorithm algorithm :
           {Algorithm::native, Algorithm::ring, Algorithm::recursive, Algorithm::parallel}) {
        if (algorithm == Algorithm::recursive && !std::has_single_bit(static_cast<unsigned>(n))) continue;
        if (algorithm == Algorithm::native && comm.transport() != TransportKind::threads) continue;
        std::vector<float> whole(kCount, 1.0F);
        std::vector<float> slice(kCount / static_cast<std::size_t>(n));
        const std::uint64_t want = (kCount - kCount / n) * 4;
        comm.reset_counters();
        comm.reduce_scatter(std::span(whole), std::span(slice), Reduce::sum, {.algorithm = algorithm});
        Counters c = comm.counters();
        EXPECT_EQ(c.sent, want) << name_of(algorithm) << " " << n;
        EXPECT_EQ(c.received, want);
        comm.reset_counters();
        comm.all_gather(std::span<const float>(slice), std::span(whole), {.algorithm = algorithm});
        c = comm.counters();
        EXPECT_EQ(c.sent, want) << name_of(algorithm) << " " << n;
        EXPECT_EQ(c.received, want);
        if (algorithm == Algorithm::ring) {
          EXPECT_EQ(c.steps, static_cast<std::uint64_t>(n - 1));
        }
        if (algorithm == Algorithm::recursive) {
          EXPECT_EQ(c.steps, log2_ceil(n));
        }
        if (algorithm == Algorithm::parallel) {
          EXPECT_EQ(c.steps, 1U);
        }
      }
    });
}

TEST(Counters, NativeMovesWhatRingMoves) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      if (comm.transport() != TransportKind::threads) return;
      const auto ranks = static_cast<std::uint64_t>(n);
      // Whole cache lines for every rank: 16 floats × 2520 divides by 1 … 9.
      std::vector<float> v(16 * 2520, 1.0F);
      comm.reset_counters();
      comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = Algorithm::native});
      EXPECT_EQ(comm.counters().sent, 2 * v.size() * 4 * (ranks - 1) / ranks);
      EXPECT_EQ(comm.counters().received, comm.counters().sent);
      EXPECT_EQ(comm.counters().steps, n == 1 ? 0U : 2U);
      // A small one is read by everybody at once.
      v.resize(100);
      comm.reset_counters();
      comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = Algorithm::native});
      EXPECT_EQ(comm.counters().sent, 400 * (ranks - 1));
      EXPECT_EQ(comm.counters().steps, n == 1 ? 0U : 1U);
    });
}

}  // namespace
}  // namespace trireme::comm::conformance
