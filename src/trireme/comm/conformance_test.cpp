#include "trireme/comm/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "support/larger.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/comm/scratch.h"
#include "trireme/comm/threads/world.h"

namespace trireme::comm::conformance {
namespace {

std::string transport_under_test() {
  const char* name = std::getenv("TRIREME_TEST_TRANSPORT");
  return name != nullptr ? name : "threads";
}

}  // namespace

namespace {

// MPI lives as long as the tests run.
std::unique_ptr<mpi::Session> session;
std::unique_ptr<Communicator> processes;

class MpiEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    if (transport_under_test() != "mpi") return;
    // Ranks that are not in a test wait for those that are.
    session = std::make_unique<mpi::Session>(mpi::SessionOptions{.timeout = 200, .tuning = nullptr});
    processes = std::make_unique<Communicator>(session->communicator());
  }
  void TearDown() override {
    processes.reset();
    session.reset();
  }
};
const ::testing::Environment* const kMpi = ::testing::AddGlobalTestEnvironment(new MpiEnvironment);

}  // namespace

std::vector<int> rank_counts() {
  std::vector<int> counts;
  for (int n = 1; n <= (processes ? processes->size() : 9); ++n) counts.push_back(n);
  return counts;
}

void over(int ranks, const std::function<void(Communicator&)>& body) {
  if (!processes)
    return threads::run(ranks, {.link = transport_under_test() == "emulated" ? "10GB/s" : "", .timeout = 20}, body);
  if (ranks > processes->size()) return;
  const auto group = processes->split(processes->rank() < ranks ? 0 : -1);
  try {
    if (group) body(*group);
  } catch (const Error& e) {
    processes->abort(e.message());
    throw;
  }
}

namespace {

template <class T>
std::span<const std::byte> bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
template <class T>
std::span<std::byte> writable(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

template <class T>
std::vector<T> values(int rank, std::int64_t count, Reduce reduce) {
  std::vector<T> v(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = value<T>(rank, i, reduce);
  return v;
}

// The first wrong element, or nothing: one assertion per tensor, not one per element.
template <class T, class Expected>
::testing::AssertionResult all_are(std::span<const T> got, Expected&& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T want = expected(static_cast<std::int64_t>(i));
    if (!same_bits(got[i], want)) {
      if constexpr (std::is_arithmetic_v<T>)
        return ::testing::AssertionFailure() << "element " << i << " is " << +got[i] << ", not " << +want;
      else
        return ::testing::AssertionFailure()
               << "element " << i << " is " << static_cast<float>(got[i]) << ", not " << static_cast<float>(want);
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Conformance, AllReduceOfEveryKind) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const DType dtype : kDTypes)
        for (const Reduce reduce : kReduces)
          for (const Algorithm algorithm : kAlgorithms)
            for (const std::int64_t count : {0, 1, 7, 1025, 2600})
              dispatch(dtype, [&](auto zero) {
                using T = decltype(zero);
                std::vector<T> v = values<T>(comm.rank(), count, reduce);
                comm.all_reduce(std::span(v), reduce, {.algorithm = algorithm});
                EXPECT_TRUE(all_are<T>(v, [&](std::int64_t i) { return reduced<T>(n, i, reduce); }))
                    << name_of(dtype) << " " << name_of(reduce) << " " << name_of(algorithm) << " count " << count
                    << " rank " << comm.rank() << " of " << n;
              });
    });
}

TEST(Conformance, SameBitsOnAllRanks) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const Algorithm algorithm : kAlgorithms)
        for (const std::size_t count : {std::size_t{333}, std::size_t{100'003}}) {
          std::vector<double> exact(count);
          std::vector<float> v(count);
          for (int r = 0; r < n; ++r) {
            std::mt19937 random(static_cast<unsigned>(r + 1));
            std::uniform_real_distribution<float> uniform(-1, 1);
            for (std::size_t i = 0; i < count; ++i) {
              const float x = uniform(random);
              exact[i] += x;
              if (r == comm.rank()) v[i] = x;
            }
          }
          comm.all_reduce(std::span(v), Reduce::sum, {.algorithm = algorithm});
          double worst = 0;
          for (std::size_t i = 0; i < count; ++i) worst = trireme::testing::larger(worst, std::abs(v[i] - exact[i]));
          EXPECT_LT(worst, 2e-6) << name_of(algorithm);
          std::vector<float> first = v;
          comm.broadcast(writable(first), 0);
          EXPECT_EQ(std::memcmp(first.data(), v.data(), count * sizeof(float)), 0)
              << name_of(algorithm) << " rank " << comm.rank() << " of " << n;
        }
    });
}

TEST(Conformance, BucketsOfSeveralTensors) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const Algorithm algorithm : kAlgorithms) {
        std::vector<std::vector<float>> tensors;
        tensors.reserve(5);
        for (const std::int64_t count : {3, 0, 4097, 1, 700})
          tensors.push_back(values<float>(comm.rank(), count, Reduce::sum));
        std::vector<Segment> segments;
        segments.reserve(tensors.size());
        for (std::vector<float>& t : tensors) segments.push_back({t.data(), static_cast<std::int64_t>(t.size())});
        std::vector<std::byte> scratch(comm.scratch_bytes(algorithm, segments, DType::f32) + 64, std::byte{0x5a});
        void* aligned = scratch.data();
        std::size_t room = scratch.size();
        std::align(kScratchAlignment, scratch.size() - 64, aligned, room);
        comm.all_reduce(segments, DType::f32, Reduce::sum,
                        {.algorithm = algorithm, .scratch = {static_cast<std::byte*>(aligned), scratch.size() - 64}});
        for (const std::vector<float>& t : tensors)
          EXPECT_TRUE(all_are<float>(t, [&](std::int64_t i) { return reduced<float>(n, i, Reduce::sum); }))
              << name_of(algorithm) << " " << n;
      }
    });
}

struct CutShape {
  std::int64_t count, slice;
};

// Even, padded, with empty slices at the end, all on one rank, empty.
std::vector<CutShape> shapes(int n) {
  return {{4 * n, 4}, {5 * n - 3 > 0 ? 5 * n - 3 : 1, 5}, {3, 2}, {1000, (1000 + n - 1) / n}, {6, 6}, {0, 0}};
}

TEST(Conformance, ReduceScatterAndAllGather) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i64})
        for (const Algorithm algorithm : kAlgorithms)
          for (const bool in_place : {false, true})
            dispatch(dtype, [&](auto zero) {
              using T = decltype(zero);
              std::vector<std::vector<T>> wholes;
              std::vector<std::vector<T>> slices;
              std::vector<Cut> cuts;
              for (const CutShape& shape : shapes(n)) {
                if (shape.slice * n < shape.count) continue;
                wholes.push_back(values<T>(comm.rank(), shape.count, Reduce::sum));
                slices.emplace_back(static_cast<std::size_t>(shape.slice), value<T>(3, 3, Reduce::sum));
              }
              std::size_t k = 0;
              for (const CutShape& shape : shapes(n)) {
                if (shape.slice * n < shape.count) continue;
                const bool fits = in_place && (comm.rank() + 1) * shape.slice <= shape.count;
                cuts.push_back({wholes[k].data(),
                                fits ? wholes[k].data() + comm.rank() * shape.slice : slices[k].data(), shape.count,
                                shape.slice});
                ++k;
              }
              comm.reduce_scatter(cuts, dtype, Reduce::mean, {.algorithm = algorithm});
              for (const Cut& cut : cuts)
                EXPECT_TRUE(
                    all_are<T>(std::span(static_cast<const T*>(cut.slice), static_cast<std::size_t>(cut.slice_count)),
                               [&](std::int64_t i) {
                                 const std::int64_t at = comm.rank() * cut.slice_count + i;
                                 return at < cut.count ? reduced<T>(n, at, Reduce::mean) : T{};
                               }))
                    << name_of(algorithm) << " of " << cut.count << " in " << cut.slice_count << " rank " << comm.rank()
                    << " of " << n << (in_place ? " in place" : "");
              for (std::size_t w = 0; w < wholes.size() && !in_place; ++w)
                EXPECT_TRUE(
                    all_are<T>(wholes[w], [&](std::int64_t i) { return value<T>(comm.rank(), i, Reduce::sum); }))
                    << name_of(algorithm) << ": the whole was written to";
              comm.all_gather(cuts, dtype, {.algorithm = algorithm});
              for (const std::vector<T>& whole : wholes)
                EXPECT_TRUE(all_are<T>(whole, [&](std::int64_t i) { return reduced<T>(n, i, Reduce::mean); }))
                    << name_of(algorithm) << " rank " << comm.rank() << " of " << n;
            });
    });
}

TEST(Conformance, LargeSlices) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      const std::int64_t slice = 30'011;
      const std::int64_t count = slice * n - 17;
      for (const Algorithm algorithm :
           {Algorithm::native, Algorithm::ring, Algorithm::recursive, Algorithm::parallel}) {
        std::vector<float> whole = values<float>(comm.rank(), count, Reduce::sum);
        std::vector<float> part(static_cast<std::size_t>(slice));
        const Cut cut{whole.data(), part.data(), count, slice};
        comm.reduce_scatter(std::span(&cut, 1), DType::f32, Reduce::sum, {.algorithm = algorithm});
        std::fill(whole.begin(), whole.end(), 0.0F);
        comm.all_gather(std::span(&cut, 1), DType::f32, {.algorithm = algorithm});
        EXPECT_TRUE(all_are<float>(whole, [&](std::int64_t i) { return reduced<float>(n, i, Reduce::sum); }))
            << name_of(algorithm) << " " << n;
      }
    });
}

TEST(Conformance, RootedCollectives) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      const auto ranks = static_cast<std::size_t>(n);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{3000}})
        for (int root = 0; root < n; ++root) {
          std::vector<std::int32_t> all(comm.rank() == root ? count * ranks : 0);
          std::vector<std::int32_t> mine =
              values<std::int32_t>(comm.rank(), static_cast<std::int64_t>(count), Reduce::sum);
          comm.gather(bytes(mine), writable(all), root);
          for (int r = 0; r < n && comm.rank() == root; ++r)
            EXPECT_TRUE(all_are<std::int32_t>(
                std::span<const std::int32_t>(all).subspan(static_cast<std::size_t>(r) * count, count),
                [&](std::int64_t i) { return value<std::int32_t>(r, i, Reduce::sum); }));
          std::vector<std::int32_t> back(count, -1);
          comm.scatter(bytes(all), writable(back), root);
          EXPECT_EQ(back, mine);
          std::vector<std::int32_t> again(all.size(), -1);
          comm.start_gather(bytes(mine), writable(again), root).wait();
          EXPECT_EQ(again, all);
          std::ranges::fill(back, -1);
          comm.start_scatter(bytes(again), writable(back), root).wait();
          EXPECT_EQ(back, mine);

          std::vector<std::int32_t> shared =
              values<std::int32_t>(comm.rank(), static_cast<std::int64_t>(count), Reduce::sum);
          comm.broadcast(writable(shared), root);
          EXPECT_TRUE(
              all_are<std::int32_t>(shared, [&](std::int64_t i) { return value<std::int32_t>(root, i, Reduce::sum); }));

          comm.reduce(mine.data(), static_cast<std::int64_t>(count), DType::i32, Reduce::mean, root);
          if (comm.rank() == root) {
            EXPECT_TRUE(
                all_are<std::int32_t>(mine, [&](std::int64_t i) { return reduced<std::int32_t>(n, i, Reduce::mean); }));
          }
        }
    });
}

TEST(Conformance, AllToAll) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{999}}) {
        std::vector<std::int64_t> out(count * static_cast<std::size_t>(n));
        std::vector<std::int64_t> in(out.size());
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = comm.rank() * 1'000'000 + static_cast<std::int64_t>(i);
        comm.all_to_all(bytes(out), writable(in));
        EXPECT_TRUE(all_are<std::int64_t>(in, [&](std::int64_t i) {
          const auto from = i / static_cast<std::int64_t>(count);
          return from * 1'000'000 + comm.rank() * static_cast<std::int64_t>(count) +
                 i % static_cast<std::int64_t>(count);
        }));
      }
    });
}

// Neighbours of a line, and every other rank: messages of unequal sizes, some of them empty.
TEST(Conformance, ExchangesWithSomeRanks) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      const auto count = [](int from, int to) {
        const int distance = from > to ? from - to : to - from;
        return distance == 1 ? std::size_t{20'000} : distance == 2 ? static_cast<std::size_t>(from) : std::size_t{0};
      };
      std::vector<std::vector<std::int64_t>> out;
      std::vector<std::vector<std::int64_t>> in;
      std::vector<Swap> swaps;
      std::uint64_t sent = 0;
      for (int peer = 0; peer < n; ++peer) {
        out.emplace_back(count(comm.rank(), peer), comm.rank() * 100 + peer);
        in.emplace_back(count(peer, comm.rank()), -1);
        sent += out.back().size() * sizeof(std::int64_t);
      }
      for (int peer = 0; peer < n; ++peer)
        if (const auto p = static_cast<std::size_t>(peer); peer != comm.rank())
          swaps.push_back({peer, bytes(out[p]), writable(in[p])});
      comm.reset_counters();
      comm.exchange(swaps);
      EXPECT_EQ(comm.counters().sent, sent);
      for (int peer = 0; peer < n; ++peer)
        EXPECT_TRUE(all_are<std::int64_t>(in[static_cast<std::size_t>(peer)],
                                          [&](std::int64_t) { return peer * 100 + comm.rank(); }));
    });
}

TEST(Conformance, MessagesKeepTheirOrderAndTags) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      const int right = (comm.rank() + 1) % n;
      const int left = (comm.rank() + n - 1) % n;
      // Small and large ones, two tags, received in another order than sent.
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{20'000}}) {
        std::vector<std::vector<std::int32_t>> out;
        out.reserve(6);
        std::vector<std::vector<std::int32_t>> in(6, std::vector<std::int32_t>(count));
        std::vector<Request> requests;
        for (int k = 0; k < 6; ++k) out.emplace_back(count, 100 * comm.rank() + k);
        for (const std::size_t k : {1, 3, 5}) requests.push_back(comm.start_recv(writable(in[k]), left, 9));
        for (std::size_t k = 0; k < 6; ++k)
          requests.push_back(comm.start_send(bytes(out[k]), right, k % 2 == 1 ? 9 : 4));
        for (const std::size_t k : {0, 2, 4}) requests.push_back(comm.start_recv(writable(in[k]), left, 4));
        for (; !requests.empty(); requests.pop_back()) requests.back().wait();
        for (std::size_t k = 0; k < 6; ++k)
          EXPECT_EQ(in[k], std::vector<std::int32_t>(count, 100 * left + static_cast<std::int32_t>(k)));
      }
    });
}

TEST(Conformance, AMessageMovesWhileItsReceiverIsElsewhere) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      if (n == 1) return;
      std::vector<float> big(50'000, 1.5F);
      if (comm.rank() == 0) {
        std::vector<float> in(big.size());
        Request request = comm.start_recv(writable(in), 1);
        comm.barrier();
        request.wait();
        EXPECT_EQ(in, big);
        EXPECT_TRUE(request.test());
      } else {
        if (comm.rank() == 1) comm.send(bytes(big), 0);
        comm.barrier();
      }
    });
}

TEST(Conformance, OverlappingNonBlockingCalls) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      constexpr int kCalls = 8;
      std::vector<std::vector<float>> buckets;
      std::vector<Request> requests;
      buckets.reserve(kCalls);
      for (int k = 0; k < kCalls; ++k) buckets.push_back(values<float>(comm.rank() + k, 1 + 999 * k, Reduce::sum));
      for (int k = 0; k < kCalls; ++k) {
        std::vector<float>& b = buckets[static_cast<std::size_t>(k)];
        const Segment segment{b.data(), static_cast<std::int64_t>(b.size())};
        requests.push_back(comm.start_all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum,
                                                 {.algorithm = kAlgorithms[static_cast<std::size_t>(k) % 7]}));
        // Blocking ones meanwhile.
        std::vector<std::int64_t> v(300, comm.rank());
        comm.all_reduce(std::span(v), Reduce::max, {.algorithm = k % 2 == 0 ? Algorithm::native : Algorithm::ring});
        EXPECT_EQ(v, std::vector<std::int64_t>(300, n - 1));
      }
      std::vector<std::int64_t> shared(10, comm.rank());
      requests.push_back(comm.start_broadcast(writable(shared), n - 1));
      requests.push_back(comm.start_barrier());
      for (; !requests.empty(); requests.pop_back()) requests.back().wait();
      EXPECT_EQ(shared, std::vector<std::int64_t>(10, n - 1));
      for (int k = 0; k < kCalls; ++k)
        EXPECT_TRUE(all_are<float>(buckets[static_cast<std::size_t>(k)], [&](std::int64_t i) {
          float sum = 0;
          for (int r = 0; r < n; ++r) sum += value<float>(r + k, i, Reduce::sum);
          return sum;
        })) << k;
    });
}

TEST(Conformance, SubGroups) {
  for (const int n : rank_counts())
    over(n, [&](Communicator& comm) {
      // Even and odd ranks, counted backwards.
      const auto half = comm.split(comm.rank() % 2, -comm.rank());
      ASSERT_NE(half, nullptr);
      EXPECT_EQ(half->size(), (n + 1 - comm.rank() % 2) / 2);
      EXPECT_EQ(half->rank(), (n - 1 - comm.rank()) / 2);
      std::vector<std::int32_t> v(2000, comm.rank());
      std::vector<std::int32_t> w = v;
      const Segment segment{w.data(), 2000};
      Request all = comm.start_all_reduce(std::span(&segment, 1), DType::i32, Reduce::sum);
      half->all_reduce(std::span(v), Reduce::sum);
      all.wait();
      int sum = 0;
      for (int r = comm.rank() % 2; r < n; r += 2) sum += r;
      EXPECT_EQ(v, std::vector<std::int32_t>(2000, sum));
      EXPECT_EQ(w, std::vector<std::int32_t>(2000, n * (n - 1) / 2));
      // A group of a group; some stay out.
      const auto part = half->split(half->rank() == 0 ? -1 : 5);
      EXPECT_EQ(part == nullptr, half->rank() == 0);
      if (part) {
        std::vector<float> ones(10, 1.0F);
        part->all_reduce(std::span(ones), Reduce::sum, {.algorithm = Algorithm::ring});
        EXPECT_EQ(ones, std::vector<float>(10, static_cast<float>(half->size() - 1)));
      }
      comm.barrier();
    });
}

TEST(Conformance, TheTwoWorkerExamples) {
  over(2, [](Communicator& comm) {
    std::vector<float> a = comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
    comm.all_reduce(std::span(a), Reduce::sum);
    EXPECT_EQ(a, (std::vector<float>{2, 2, 4}));
    const std::vector<float> b = comm.rank() == 0 ? std::vector<float>{1, 2} : std::vector<float>{3, 4};
    std::vector<float> all(4);
    comm.all_gather(std::span(b), std::span(all));
    EXPECT_EQ(all, (std::vector<float>{1, 2, 3, 4}));
  });
}

// Whatever the launcher's variables say, as those of a plain srun do not.
TEST(Conformance, MpiCountsTheRanksOfThisMachine) {
  if (!processes) GTEST_SKIP() << "for processes";
  const char* const said = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const std::string before = said == nullptr ? "" : said;
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "77", 1);
  EXPECT_EQ(mpi::launched().value_or(mpi::Launched{}).here, processes->size());
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", before.c_str(), 1);
}

}  // namespace
}  // namespace trireme::comm::conformance
