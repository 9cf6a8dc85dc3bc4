#include "trireme/program/memory_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "trireme/program/placement.h"

namespace trireme::program {
namespace {

bool transient(const Buffer& b, int tier = 0) {
  return b.tier == tier && b.state == kNone && b.bytes > 0 && b.first != kNone;
}

// Buffers in the orders in which they are placed: which one gives the smallest arena is hard to tell before.
enum class Order { by_size, by_life, by_size_and_life, by_appearance };
constexpr std::array kOrders = {Order::by_size, Order::by_life, Order::by_size_and_life, Order::by_appearance};

std::vector<std::size_t> sorted(const std::vector<Buffer>& buffers, int tier, Order order) {
  struct Key {
    double first, second;
    std::size_t buffer;
  };
  std::vector<Key> keys;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& b = buffers[i];
    if (!transient(b, tier)) continue;
    const auto bytes = static_cast<double>(b.bytes);
    const auto life = static_cast<double>(b.last - b.first + 1);
    switch (order) {
      case Order::by_size: keys.push_back({bytes, life, i}); break;
      case Order::by_life: keys.push_back({life, bytes, i}); break;
      case Order::by_size_and_life: keys.push_back({bytes * life, life, i}); break;
      // Saved activations stack up, the rest fills in above.
      case Order::by_appearance: keys.push_back({-static_cast<double>(b.first), bytes, i}); break;
    }
  }
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tie(a.first, a.second) > std::tie(b.first, b.second);
  });
  std::vector<std::size_t> ids(keys.size());
  std::transform(keys.begin(), keys.end(), ids.begin(), [](const Key& k) { return k.buffer; });
  return ids;
}

std::vector<std::size_t> live_bytes_in(const Program& program, int tier) {
  std::vector<std::ptrdiff_t> change(program.instructions.size() + 1, 0);
  for (const Buffer& b : program.buffers) {
    if (!transient(b, tier)) continue;
    change[static_cast<std::size_t>(b.first)] += static_cast<std::ptrdiff_t>(b.bytes);
    change[static_cast<std::size_t>(b.last) + 1] -= static_cast<std::ptrdiff_t>(b.bytes);
  }
  std::vector<std::size_t> live(program.instructions.size());
  auto sum = static_cast<std::ptrdiff_t>(program.state_bytes_in(tier));
  for (std::size_t i = 0; i < live.size(); ++i) {
    sum += change[i];
    live[i] = static_cast<std::size_t>(sum);
  }
  return live;
}

// Places the transient buffers of one tier behind its state, and gives the end of what that tier holds.
std::size_t plan_tier(Program& program, int tier) {
  const std::size_t state = program.state_bytes_in(tier);
  const std::vector<std::size_t> live = live_bytes_in(program, tier);
  const std::size_t lower_bound = live.empty() ? state : *std::max_element(live.begin(), live.end());
  if (tier == 0) program.lower_bound = lower_bound;
  // Alignment behind the state is then alignment in the tier.
  std::size_t widest = kAlignment;
  for (const Buffer& b : program.buffers)
    if (transient(b, tier)) widest = std::max(widest, b.alignment);
  const std::size_t base = aligned(state, widest);
  const std::size_t good_enough = (lower_bound - state) + (lower_bound - state) / 1000;
  std::vector<Placement::Life> lives;
  lives.reserve(program.buffers.size());
  for (const Buffer& b : program.buffers)
    lives.push_back(transient(b, tier) ? Placement::Life{b.first, b.last, aligned(b.bytes, b.alignment), b.alignment}
                                       : Placement::Life{});
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> offsets;
  Placement placement(lives);
  for (const Order order : kOrders) {
    const auto placed = placement.run(sorted(program.buffers, tier, order), best);
    if (!placed || *placed >= best) continue;
    best = *placed;
    offsets = placement.offsets();
    if (best <= good_enough) break;
  }
  std::size_t end = state;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& b = program.buffers[i];
    if (b.tier != tier) continue;
    if (b.state == kNone) b.offset = base + (transient(b, tier) ? offsets[i] : 0);
    if (b.bytes > 0 && (b.state != kNone || transient(b, tier))) end = std::max(end, b.offset + b.bytes);
  }
  return end;
}

}  // namespace

std::vector<std::size_t> live_bytes(const Program& program) { return live_bytes_in(program, 0); }

void plan_memory(Program& program) {
  program.arena_bytes = plan_tier(program, 0);
  for (int tier = 1; tier < kTiers; ++tier)
    program.tier_bytes[static_cast<std::size_t>(tier)] = plan_tier(program, tier);
}

PeakReport peak(const Program& program) {
  PeakReport report;
  report.bytes = program.arena_bytes;
  const std::vector<std::size_t> live = live_bytes(program);
  if (!live.empty())
    report.instruction = static_cast<std::int32_t>(std::max_element(live.begin(), live.end()) - live.begin());
  std::size_t sum = 0;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    if (b.tier != 0) continue;
    const bool alive =
        b.state != kNone || (transient(b) && b.first <= report.instruction && report.instruction <= b.last);
    if (!alive) continue;
    report.categories[static_cast<std::size_t>(b.category)] += b.bytes;
    sum += b.bytes;
    report.largest.push_back(static_cast<BufferId>(i));
  }
  report.padding = report.bytes - sum;
  std::stable_sort(report.largest.begin(), report.largest.end(), [&](BufferId a, BufferId b) {
    return program.buffers[static_cast<std::size_t>(a)].bytes > program.buffers[static_cast<std::size_t>(b)].bytes;
  });
  return report;
}

}  // namespace trireme::program
