#include <gtest/gtest.h>

#include "trireme/comm/conformance.h"
#include "trireme/comm/device/kinds.h"

// What goes through the host's memory, over every transport: here the device is the CPU, whose streams do their work at
// once.
namespace trireme::comm::conformance {
namespace {

using Values = std::vector<float>;

Values numbers(int rank, std::size_t message, std::size_t count) {
  Values v(count);
  for (std::size_t i = 0; i < count; ++i)
    v[i] = static_cast<float>(rank) + 10.0F * static_cast<float>(message) + 0.001F * static_cast<float>(i % 997);
  return v;
}

std::unique_ptr<device::Streams> streams() {
  return device::make_streams(device::Kind::cpu, {.streams = 1, .events = DeviceGroup::kEvents});
}

// More than a transport keeps by itself, several of them on their way at once.
TEST(ConformanceStaged, MessagesGoRoundARing) {
  constexpr std::size_t kMessages = 4;
  for (const int ranks : rank_counts()) {
    if (ranks < 2 || ranks > 4) continue;
    over(ranks, [&](Communicator& c) {
      const std::unique_ptr<DeviceGroup> group = staged_group(c, device::Kind::cpu);
      const std::unique_ptr<device::Streams> own = streams();
      const int next = (c.rank() + 1) % c.size();
      const int before = (c.rank() + c.size() - 1) % c.size();
      for (const std::size_t count : {std::size_t{1}, std::size_t{24576}, std::size_t{49152}, std::size_t{400000}}) {
        std::vector<Values> out(kMessages);
        std::vector<Values> in(kMessages, Values(count, -1.0F));
        std::vector<std::unique_ptr<DeviceMessage>> sends;
        std::vector<std::unique_ptr<DeviceMessage>> receives;
        const auto place = [&](Values& v, int peer, std::size_t tag, bool sent) {
          return DeviceMessage::Place{reinterpret_cast<std::byte*>(v.data()), count * sizeof(float), peer,
                                      static_cast<int>(tag), sent};
        };
        for (std::size_t m = 0; m < kMessages; ++m) {
          out[m] = numbers(c.rank(), m, count);
          sends.push_back(group->message(place(out[m], next, m, true)));
          receives.push_back(group->message(place(in[m], before, m, false)));
        }
        for (int run = 0; run < 3; ++run) {
          for (std::size_t m = 0; m < kMessages; ++m) sends[m]->start({*own, 0, 0});
          for (std::size_t m = 0; m < kMessages; ++m) receives[m]->start({*own, 0, 0});
          for (std::size_t m = 0; m < kMessages; ++m) sends[m]->settle({*own, 0, 0});
          for (std::size_t m = 0; m < kMessages; ++m) {
            sends[m]->finish();
            receives[m]->finish();
            EXPECT_EQ(in[m], numbers(before, m, count)) << ranks << " ranks, message " << m << " of " << count;
            std::fill(in[m].begin(), in[m].end(), -1.0F);
          }
        }
      }
    });
  }
}

TEST(ConformanceStaged, ExchangeOfUnequalMessages) {
  const auto length = [](int from, int to) { return static_cast<std::size_t>(1000 * from + 3 * to); };
  for (const int ranks : rank_counts()) {
    if (ranks > 4) continue;
    over(ranks, [&](Communicator& c) {
      const std::unique_ptr<DeviceGroup> group = staged_group(c, device::Kind::cpu);
      const std::unique_ptr<device::Streams> own = streams();
      std::vector<Values> out(static_cast<std::size_t>(ranks));
      std::vector<Values> in(static_cast<std::size_t>(ranks));
      std::vector<Swap> swaps;
      for (int r = 0; r < ranks; ++r) {
        if (r == c.rank()) continue;
        Values& mine = out[static_cast<std::size_t>(r)] = numbers(c.rank(), 0, length(c.rank(), r));
        Values& theirs = in[static_cast<std::size_t>(r)] = Values(length(r, c.rank()), -1.0F);
        swaps.push_back({r, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(theirs))});
      }
      group->exchange(swaps, {}, {*own, 0, 0});
      for (const Swap& swap : swaps)
        EXPECT_EQ(in[static_cast<std::size_t>(swap.peer)], numbers(swap.peer, 0, length(swap.peer, c.rank())));
    });
  }
}

}  // namespace
}  // namespace trireme::comm::conformance
