// Ranks of a user of the library, without a trainer.
#include <gtest/gtest.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/library.h"

namespace {

using trireme::testing::expect_part;
using trireme::testing::refusal;

TEST(OwnRanks, AProcessByItselfIsAGroupOfOne) {
  tri::Communicator comm = tri::Communicator::create();
  EXPECT_EQ(comm.size(), 1);
  const std::vector<float> a = {1, 2, 3};
  EXPECT_EQ(comm.all_reduce(a), a);
}

TEST(OwnRanks, ATransportThatThereIsNotIsRefused) {
  const std::string expected = "transport \"nonsense\": expected auto, threads or mpi";
  EXPECT_EQ(refusal([] { tri::Communicator::create({.transport = "nonsense"}); }), expected);
  EXPECT_EQ(refusal([] { tri::run_ranks(1, [](tri::Communicator&) {}, {.transport = "nonsense"}); }), expected);
  EXPECT_EQ(tri::Communicator::create({.transport = "threads"}).size(), 1);
}

TEST(OwnRanks, EveryOperationOfTheCommunicator) {
  tri::run_ranks(3, [](tri::Communicator& comm) {
    const int rank = comm.rank();
    const auto me = static_cast<float>(rank);
    std::vector<float> whole = {me, me + 1, me + 2, me + 3, me + 4, me + 5};
    std::vector<float> slice(2);
    comm.reduce_scatter(std::span(whole), std::span(slice));
    EXPECT_EQ(slice, (std::vector<float>{6 * me + 3, 6 * me + 6}));
    std::vector<float> all(6);
    comm.start_all_gather(std::span<const float>(slice), std::span(all)).wait();
    EXPECT_EQ(all, (std::vector<float>{3, 6, 9, 12, 15, 18}));
    std::vector<float> again(2);
    comm.start_reduce_scatter(std::span(whole), std::span(again), tri::ReduceOp::max).wait();
    EXPECT_EQ(again, (std::vector<float>{2 * me + 2, 2 * me + 3}));

    std::vector<float> sum = {me};
    comm.reduce(std::span(sum), 1);
    if (rank == 1) {
      EXPECT_EQ(sum[0], 3);
    }
    sum = {me};
    comm.start_reduce(std::span(sum), 2).wait();
    if (rank == 2) {
      EXPECT_EQ(sum[0], 3);
    }
    std::vector<double> counts = {1.0};
    tri::Request pending = comm.start_all_reduce(std::span(counts));
    while (!pending.test()) {
    }
    EXPECT_EQ(counts[0], 3);

    const std::vector<std::int32_t> source =
        rank == 0 ? std::vector<std::int32_t>{7, 8, 9} : std::vector<std::int32_t>{};
    std::vector<std::int32_t> mine(1);
    comm.scatter(std::span<const std::int32_t>(source), std::span(mine), 0);
    EXPECT_EQ(mine[0], 7 + rank);
    std::vector<std::int32_t> gathered(3);
    const std::span<std::int32_t> at_root = std::span(gathered).first(rank == 2 ? 3 : 0);
    comm.gather(std::span<const std::int32_t>(mine), at_root, 2);
    if (rank == 2) {
      EXPECT_EQ(gathered, (std::vector<std::int32_t>{7, 8, 9}));
    }
    const std::vector<std::int32_t> letters = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::vector<std::int32_t> received(3);
    comm.all_to_all(std::span<const std::int32_t>(letters), std::span(received));
    EXPECT_EQ(received, (std::vector<std::int32_t>{rank, 10 + rank, 20 + rank}));
    std::ranges::fill(gathered, 0);
    comm.start_gather(std::span<const std::int32_t>(mine), at_root, 2).wait();
    std::vector<std::int32_t> back(1);
    comm.start_scatter(std::span<const std::int32_t>(at_root), std::span(back), 2).wait();
    EXPECT_EQ(back, mine);
    comm.start_all_to_all(std::span<const std::int32_t>(received), std::span(gathered)).wait();
    EXPECT_EQ(gathered, letters);
    comm.start_broadcast(std::span(mine), 1).wait();
    EXPECT_EQ(mine[0], 8);
    const std::vector<std::int32_t> token = {rank};
    std::vector<std::int32_t> from(1);
    tri::Request in = comm.start_recv(std::span(from), (rank + 2) % 3, 4);
    tri::Request out = comm.start_send(std::span<const std::int32_t>(token), (rank + 1) % 3, 4);
    in.wait();
    out.wait();
    EXPECT_EQ(from[0], (rank + 2) % 3);
    comm.start_barrier().wait();
    try {
      std::vector<float> short_slice(1);
      comm.reduce_scatter(std::span(whole), std::span(short_slice));
      FAIL();
    } catch (const tri::Error& e) {
      expect_part(e.message(), "6 elements for 3 ranks");
    }
  });
}

// Small numbers, which every type has: rank + 1, and what three ranks make of it.
template <class T>
void expect_reductions(tri::Communicator& comm) {
  const auto reduced = [&](tri::ReduceOp op, bool begun) {
    std::vector<T> values(5, static_cast<T>(static_cast<float>(comm.rank() + 1)));
    if (begun)
      comm.start_all_reduce(std::span(values), op).wait();
    else
      comm.all_reduce(std::span(values), op);
    for (const T& value : values) EXPECT_EQ(static_cast<float>(value), static_cast<float>(values.front()));
    return static_cast<float>(values.back());
  };
  for (const bool begun : {false, true}) {
    EXPECT_EQ(reduced(tri::ReduceOp::sum, begun), 6);
    EXPECT_EQ(reduced(tri::ReduceOp::mean, begun), 2);
    EXPECT_EQ(reduced(tri::ReduceOp::max, begun), 3);
    EXPECT_EQ(reduced(tri::ReduceOp::min, begun), 1);
    EXPECT_EQ(reduced(tri::ReduceOp::prod, begun), 6);
  }
  std::vector<T> at_root(1, static_cast<T>(static_cast<float>(comm.rank())));
  comm.reduce(std::span(at_root), 1);
  if (comm.rank() == 1) {
    EXPECT_EQ(static_cast<float>(at_root[0]), 3);
  }
}

TEST(OwnRanks, ReduceEveryType) {
  tri::run_ranks(3, [](tri::Communicator& comm) {
    expect_reductions<float>(comm);
    expect_reductions<double>(comm);
    expect_reductions<tri::Float16>(comm);
    expect_reductions<tri::BFloat16>(comm);
    expect_reductions<std::int8_t>(comm);
    expect_reductions<std::uint8_t>(comm);
    expect_reductions<std::uint16_t>(comm);
    expect_reductions<std::int32_t>(comm);
    expect_reductions<std::int64_t>(comm);
  });
}

// What no rank can do is refused by the call, in words of its own, and leaves the group as it was.
TEST(OwnRanks, RefuseOtherRanksAndTags) {
  tri::run_ranks(2, [](tri::Communicator& comm) {
    std::vector<float> two(2);
    std::vector<float> one(1);
    const std::span<const float> given(two);
    const auto says = [&](const std::function<void()>& call, const std::string& part) {
      try {
        call();
        ADD_FAILURE() << part;
      } catch (const tri::Error& e) {
        EXPECT_EQ(e.kind(), tri::Error::Kind::request);
        expect_part(e.message(), part);
      }
    };
    for (const int root : {-1, 2}) {
      const std::string group = std::to_string(root) + ": the group has ranks 0 to 1";
      says([&] { comm.broadcast(std::span(two), root); }, "broadcast from root " + group);
      says([&] { comm.start_broadcast(std::span(two), root); }, "broadcast from root " + group);
      says([&] { comm.reduce(std::span(two), root); }, "reduce to root " + group);
      says([&] { comm.start_reduce(std::span(two), root); }, "reduce to root " + group);
      says([&] { comm.scatter(given, std::span(one), root); }, "scatter from root " + group);
      says([&] { comm.start_scatter(given, std::span(one), root); }, "scatter from root " + group);
      says([&] { comm.gather(given, std::span(one), root); }, "gather to root " + group);
      says([&] { comm.start_gather(given, std::span(one), root); }, "gather to root " + group);
      says([&] { comm.send(given, root); }, "send to rank " + group);
      says([&] { comm.start_send(given, root); }, "send to rank " + group);
      says([&] { comm.recv(std::span(two), root); }, "recv from rank " + group);
      says([&] { comm.start_recv(std::span(two), root); }, "recv from rank " + group);
    }
    says([&] { comm.send(given, 1, -1); }, "tag -1: tags are from 0 to 32767");
    says([&] { comm.start_recv(std::span(two), 1, 32768); }, "tag 32768: tags are from 0 to 32767");
    says([&] { comm.scatter(given, std::span(two), comm.rank()); }, "scatter: the root has 8 bytes for 2 ranks");
    says([&] { comm.start_gather(given, std::span(two), comm.rank()); }, "gather: the root has 8 bytes for 2 ranks");
    says([&] { comm.all_to_all(given, std::span(one)); }, "all_to_all: 8 bytes go out, and 4 come in");
    one = {1};
    comm.all_reduce(std::span(one));
    EXPECT_EQ(one[0], 2);
  });
}

// Of whatever type an exception is, the other ranks do not wait for the one that threw it.
TEST(OwnRanks, AnyExceptionEndsAll) {
  std::string heard;
  try {
    tri::run_ranks(2, [&](tri::Communicator& comm) {
      if (comm.rank() == 1) throw 42;
      heard = refusal([&] { comm.barrier(); }, tri::Error::Kind::failure);
    });
    FAIL();
  } catch (int number) {
    EXPECT_EQ(number, 42);
  }
  expect_part(heard, "rank 1 gave up: an exception of unknown type");
}

}  // namespace
