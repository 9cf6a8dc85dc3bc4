#include "trireme/comm/device/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "trireme/comm/device/kinds.h"
#include "trireme/comm/threads/world.h"
#include "trireme/core/rng.h"
#include "trireme/device/arena.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/nccl.h"

// Collectives on a GPU's memory against the same sums in order on the host. They need a GPU.
namespace trireme::comm {
namespace {

using Make = std::function<std::unique_ptr<DeviceGroup>(Communicator&)>;
using Values = std::vector<float>;

struct Case {
  std::string name;
  int ranks;
  Make make;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DeviceGroups : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (device::cuda::gpus().empty()) GTEST_SKIP() << "no GPU here";
    if (GetParam().name.starts_with("nccl") && !device::cuda::Nccl::available()) GTEST_SKIP() << "no NCCL here";
  }

  // A rank's end: memory on the GPU, its streams, the group.
  static constexpr std::size_t kMessages = 4;
  struct End {
    int rank;
    int ranks;
    device::Arena arena{std::size_t{4} << 20, device::Kind::cuda};
    std::unique_ptr<device::Streams> streams =
        device::make_streams(device::Kind::cuda, {.streams = 3, .events = 2 * kMessages});
    DeviceGroup* group = nullptr;
    std::size_t used = 0;

    DeviceGroup::OnStream on() { return {*streams, 1, 0}; }
    std::byte* place(std::size_t bytes) {
      std::byte* const at = arena.data() + used;
      used += (bytes + 63) / 64 * 64;
      return at;
    }
    float* put(const Values& values) {
      std::byte* const at = place(values.size() * sizeof(float));
      arena.write(static_cast<std::size_t>(at - arena.data()), std::as_bytes(std::span(values)));
      return reinterpret_cast<float*>(at);
    }
    Values get(const float* from, std::size_t count) {
      streams->synchronize();
      Values values(count);
      arena.read(static_cast<std::size_t>(reinterpret_cast<const std::byte*>(from) - arena.data()),
                 std::as_writable_bytes(std::span(values)));
      return values;
    }
  };

  static Values values(int rank, std::size_t count, std::uint64_t seed) {
    SplitMix random(seed * 1000 + static_cast<std::uint64_t>(rank));
    Values v(count);
    for (float& x : v) x = static_cast<float>(2 * random.unit() - 1);
    return v;
  }
  Values sum(std::size_t count, std::uint64_t seed, bool max = false) const {
    Values total = values(0, count, seed);
    for (int r = 1; r < GetParam().ranks; ++r) {
      const Values other = values(r, count, seed);
      for (std::size_t i = 0; i < count; ++i) total[i] = max ? std::max(total[i], other[i]) : total[i] + other[i];
    }
    return total;
  }

  // Runs `body` on every rank, three times over.
  void on_all(const std::function<void(End&)>& body) const {
    threads::World world(GetParam().ranks, {.link = {}, .timeout = 20});
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(GetParam().ranks));
    for (int r = 0; r < GetParam().ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          Communicator communicator = world.communicator(r);
          const auto group = GetParam().make(communicator);
          End end{r, GetParam().ranks};
          end.group = group.get();
          for (int round = 0; round < 3; ++round) {
            end.used = 0;
            body(end);
          }
          communicator.barrier();  // the others may be about to wait for this rank's events
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
          world.abort(e.what());
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_P(DeviceGroups, AllReduceIsTheSumInOrder) {
  on_all([&](End& end) {
    std::vector<Segment> segments;
    const std::vector<std::size_t> counts = {1, 7, 64, 1001, 40000};
    for (std::size_t i = 0; i < counts.size(); ++i)
      segments.push_back({end.put(values(end.rank, counts[i], i)), static_cast<std::int64_t>(counts[i])});
    end.group->all_reduce(segments, DType::f32, Reduce::sum, {}, end.on());
    for (std::size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(end.get(static_cast<float*>(segments[i].data), counts[i]), sum(counts[i], i)) << counts[i];
  });
}

TEST_P(DeviceGroups, AllReduceOfTheMaximum) {
  on_all([&](End& end) {
    const Segment segment{end.put(values(end.rank, 333, 5)), 333};
    end.group->all_reduce(std::span(&segment, 1), DType::f32, Reduce::max, {}, end.on());
    EXPECT_EQ(end.get(static_cast<float*>(segment.data), 333), sum(333, 5, true));
  });
}

TEST_P(DeviceGroups, ReduceScatterAndAllGatherOfUnevenCuts) {
  on_all([&](End& end) {
    for (const std::int64_t count : {1, 12, 13, 1000, 4097}) {
      const auto n = static_cast<std::size_t>(count);
      const std::int64_t slice = (count + end.ranks - 1) / end.ranks;
      const auto room = static_cast<std::size_t>(slice);
      const Cut cut{end.put(values(end.rank, n, 9)), end.put(Values(room, -1.0F)), count, slice};
      end.group->reduce_scatter(std::span(&cut, 1), DType::f32, {}, end.on());
      const Values total = sum(n, 9);
      Values expected(room, 0.0F);
      for (std::size_t i = 0; i < room; ++i)
        if (const std::size_t at = static_cast<std::size_t>(end.rank) * room + i; at < n) expected[i] = total[at];
      EXPECT_EQ(end.get(static_cast<float*>(cut.slice), room), expected) << count;
      const Cut back{end.put(Values(n, -1.0F)), cut.slice, count, slice};
      end.group->all_gather(std::span(&back, 1), DType::f32, {}, end.on());
      EXPECT_EQ(end.get(static_cast<float*>(back.whole), n), total) << count;
    }
  });
}

TEST_P(DeviceGroups, AllToAllOfSeveralTensors) {
  on_all([&](End& end) {
    const auto ranks = static_cast<std::size_t>(end.ranks);
    std::vector<DeviceGroup::Exchange> tensors;
    for (const std::size_t run : {1, 33}) {
      const float* const out = end.put(values(end.rank, run * ranks, run));
      float* const in = end.put(Values(run * ranks, -1.0F));
      tensors.push_back(
          {reinterpret_cast<const std::byte*>(out), reinterpret_cast<std::byte*>(in), run * ranks * sizeof(float)});
    }
    end.group->all_to_all(tensors, {}, end.on());
    for (const DeviceGroup::Exchange& t : tensors) {
      const std::size_t run = t.bytes / sizeof(float) / ranks;
      Values expected;
      for (int r = 0; r < end.ranks; ++r) {
        const Values theirs = values(r, run * ranks, run);
        const auto begin = theirs.begin() + static_cast<std::ptrdiff_t>(run) * end.rank;
        expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(run));
      }
      EXPECT_EQ(end.get(reinterpret_cast<const float*>(t.in), run * ranks), expected) << run;
    }
  });
}

TEST_P(DeviceGroups, ExchangeOfUnequalMessages) {
  const auto length = [](int from, int to) { return static_cast<std::size_t>(10 * from + 3 * to); };
  on_all([&](End& end) {
    std::vector<Swap> swaps;
    for (int r = 0; r < end.ranks; ++r) {
      if (r == end.rank) continue;
      const std::size_t in = length(r, end.rank);
      swaps.push_back({r,
                       std::as_bytes(std::span(end.put(values(end.rank, length(end.rank, r), 7)), length(end.rank, r))),
                       std::as_writable_bytes(std::span(end.put(Values(in, -1.0F)), in))});
    }
    end.group->exchange(swaps, {}, end.on());
    for (const Swap& swap : swaps)
      EXPECT_EQ(end.get(reinterpret_cast<const float*>(swap.in.data()), length(swap.peer, end.rank)),
                values(swap.peer, length(swap.peer, end.rank), 7));
  });
}

// Each rank sends several messages on before it receives those of the one before it, and writes over what it sent once
// that has been taken.
TEST_P(DeviceGroups, MessagesGoRoundARing) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "nobody to send to";
  constexpr std::size_t kCount = 30000;
  on_all([&](End& end) {
    const int next = (end.rank + 1) % end.ranks;
    const int before = (end.rank + end.ranks - 1) % end.ranks;
    const auto place = [](float* data, int peer, int tag, bool sends) {
      return DeviceMessage::Place{reinterpret_cast<std::byte*>(data), kCount * sizeof(float), peer, tag, sends};
    };
    std::vector<float*> out;
    std::vector<float*> in;
    std::vector<std::unique_ptr<DeviceMessage>> sends;
    std::vector<std::unique_ptr<DeviceMessage>> receives;
    float* const over = end.put(Values(kCount, -2.0F));
    for (std::size_t m = 0; m < kMessages; ++m) {
      out.push_back(end.put(values(end.rank, kCount, m)));
      in.push_back(end.put(Values(kCount, -1.0F)));
      sends.push_back(end.group->message(place(out.back(), next, static_cast<int>(m), true)));
      receives.push_back(end.group->message(place(in.back(), before, static_cast<int>(m), false)));
    }
    for (std::size_t m = 0; m < kMessages; ++m) sends[m]->start({*end.streams, 1, m});
    for (std::size_t m = 0; m < kMessages; ++m) receives[m]->start({*end.streams, 2, kMessages + m});
    for (std::size_t m = 0; m < kMessages; ++m) {
      sends[m]->settle({*end.streams, 1, m});
      end.streams->copy(out[m], over, kCount * sizeof(float), 1);
    }
    for (std::size_t m = 0; m < kMessages; ++m) {
      sends[m]->finish();
      receives[m]->finish();
      EXPECT_EQ(end.get(in[m], kCount), values(before, kCount, m)) << m;
    }
  });
}

// The stream is held up as by a collective whose other ranks do not come. With one GPU there are no other ranks over
// NCCL: that a kernel in progress returns when its group is abandoned is not seen here.
TEST_P(DeviceGroups, NobodyWaitsForARankThatHasGivenUp) {
  threads::World world(1);
  Communicator communicator = world.communicator(0);
  const auto group = GetParam().make(communicator);
  if (!group->waits_on_device()) GTEST_SKIP() << "no work on its streams waits for other ranks";
  End end{0, 1};
  const Segment segment{end.put({1, 2, 3}), 3};
  DeviceGroup* const groups[] = {group.get()};
  group->all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum, {}, end.on());
  synchronize(*end.streams, groups);
  std::atomic<bool> held = true;
  const auto hold = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(true); };
  end.streams->call(hold, &held, 1);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    world.abort("rank 1 ran out of luck");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    held = false;
    held.notify_all();
  });
  const auto thrown = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.message();
    }
    return "nothing";
  };
  EXPECT_EQ(thrown([&] { synchronize(*end.streams, groups); }), "rank 1 ran out of luck");
  other.join();
  EXPECT_TRUE(end.streams->is_idle());
  EXPECT_EQ(thrown([&] { group->all_reduce(std::span(&segment, 1), DType::f32, Reduce::sum, {}, end.on()); }),
            "NCCL: the group was abandoned after a failure");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  if (!device::cuda::built()) return all;
  for (const int ranks : {1, 2, 3, 4}) {
    all.push_back({fmt::format("shared_{}", ranks), ranks, [](Communicator& c) { return shared_group(c); }});
    all.push_back(
        {fmt::format("staged_{}", ranks), ranks, [](Communicator& c) { return staged_group(c, device::Kind::cuda); }});
  }
  // It refuses two ranks on one GPU.
  all.push_back({"nccl_1", 1, [](Communicator& c) { return nccl_group(c); }});
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceGroups);
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceGroups, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace trireme::comm
