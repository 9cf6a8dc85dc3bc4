#include "trireme/program/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "trireme/core/error.h"

namespace trireme::program {
namespace {

bool transient(const Buffer& b, int tier = 0) {
  return b.tier == tier && b.state == kNone && b.bytes > 0 && b.first != kNone;
}

// Places buffers one after another: each goes to the lowest gap, among those already placed and alive with it, that
// holds it. Returns the end of the highest.
class Placement {
 public:
  explicit Placement(const std::vector<Buffer>& buffers) : offsets_(buffers.size(), 0) {
    for (const Buffer& b : buffers) spans_.push_back({b.first, b.last, aligned(b.bytes, b.alignment), b.alignment});
  }

  std::size_t run(const std::vector<std::size_t>& order) {
    std::vector<std::size_t> placed;  // sorted by offset
    placed.reserve(order.size());
    std::size_t end = 0;
    for (const std::size_t b : order) {
      const std::size_t offset = lowest_gap(spans_[b], placed);
      offsets_[b] = offset;
      const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                       [&](std::size_t o, std::size_t p) { return o < offsets_[p]; });
      placed.insert(at, b);
      end = std::max(end, offset + spans_[b].size);
    }
    return end;
  }

  const std::vector<std::size_t>& offsets() const { return offsets_; }

 private:
  // What the search looks at, close together: it visits every placed buffer for every new one.
  struct Span {
    std::int32_t first;
    std::int32_t last;
    std::size_t size;
    std::size_t alignment;
  };

  std::size_t lowest_gap(const Span& wanted, const std::vector<std::size_t>& placed) const {
    std::size_t candidate = 0;
    for (const std::size_t p : placed) {
      const Span& other = spans_[p];
      if (other.first > wanted.last || other.last < wanted.first) continue;
      if (candidate + wanted.size <= offsets_[p]) break;
      candidate = std::max(candidate, aligned(offsets_[p] + other.size, wanted.alignment));
    }
    return candidate;
  }

  std::vector<Span> spans_;
  std::vector<std::size_t> offsets_;
};

std::vector<std::vector<std::size_t>> placement_orders(const std::vector<Buffer>& buffers, int tier) {
  std::vector<std::size_t> ids;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (transient(buffers[i], tier)) ids.push_back(i);
  const auto sorted = [&](auto key) {
    std::vector<std::size_t> order = ids;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key(buffers[a]) > key(buffers[b]); });
    return order;
  };
  const auto life = [](const Buffer& b) { return static_cast<double>(b.last - b.first + 1); };
  std::vector<std::vector<std::size_t>> orders;
  orders.push_back(sorted([&](const Buffer& b) { return std::pair(static_cast<double>(b.bytes), life(b)); }));
  orders.push_back(sorted([&](const Buffer& b) { return std::pair(life(b), static_cast<double>(b.bytes)); }));
  orders.push_back(sorted([&](const Buffer& b) { return std::pair(static_cast<double>(b.bytes) * life(b), life(b)); }));
  // In the order they appear: saved activations stack up, the rest fills in above.
  orders.push_back(
      sorted([&](const Buffer& b) { return std::pair(-static_cast<double>(b.first), static_cast<double>(b.bytes)); }));
  return orders;
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
  // Each order takes time that grows with the square of the number of buffers.
  const std::size_t good_enough = (lower_bound - state) + (lower_bound - state) / 1000;
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> offsets;
  for (const auto& order : placement_orders(program.buffers, tier)) {
    Placement placement(program.buffers);
    const std::size_t end = placement.run(order);
    if (end >= best) continue;
    best = end;
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
