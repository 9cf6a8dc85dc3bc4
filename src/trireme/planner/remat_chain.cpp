#include "trireme/planner/remat_chain.h"

#include <algorithm>
#include <limits>

namespace trireme::planner {
namespace {

using passes::Hold;
using passes::RematPlan;

// What a group contributes, whatever comes before and after it.
struct GroupCost {
  std::uint64_t held = 0;   // from its forward to its gradients
  std::uint64_t peak = 0;   // beside what earlier groups hold
  std::uint64_t least = 0;  // of it and of every longer group that begins with it
  double seconds = 0;
};

std::uint64_t input_held(const RematSegment& s) { return s.reads_input ? s.input : 0; }

GroupCost keep_cost(const RematSegment& s) {
  GroupCost cost;
  cost.held = input_held(s) + s.saved;
  cost.peak = cost.held + std::max(s.forward, s.backward);
  // While it runs, what enters is there whether the gradients read it or not.
  cost.peak = std::max(cost.peak, s.input + s.saved + s.forward);
  return cost;
}

GroupCost expensive_cost(const RematSegment& s) {
  GroupCost cost;
  cost.held = s.input + s.expensive;  // cheap values may be made from what enters
  cost.peak = std::max(s.input + s.expensive + s.running, s.input + s.saved + std::max(s.forward, s.backward));
  cost.seconds = s.cheap_time;
  return cost;
}

// Adds one segment after another to a group that holds its input alone.
class InputGroup {
 public:
  explicit InputGroup(const RematSegment& first) : input_(first.input) {}

  // `gradient`: bytes of the gradient that comes in from behind the group.
  GroupCost with(const RematSegment& s, std::uint64_t gradient) {
    if (made_ > 0 || begun_) made_ += input_held(s);
    begun_ = true;
    running_ = std::max(running_, input_ + s.running);
    made_ += s.saved;
    backward_ = std::max(backward_, input_ + made_ + s.backward);
    again_ = std::max(again_, input_ + made_ + s.forward);
    GroupCost cost;
    cost.held = input_;
    cost.least = std::max({running_, backward_, again_});
    cost.peak = std::max(cost.least, again_ + gradient);
    cost.seconds = inner_ + s.last_time;
    inner_ += s.inner_time;
    return cost;
  }

 private:
  std::uint64_t input_;
  bool begun_ = false;
  std::uint64_t made_ = 0;     // by the segments so far, when computed again
  std::uint64_t running_ = 0;  // peaks: forward, gradients, computing again
  std::uint64_t backward_ = 0;
  std::uint64_t again_ = 0;
  double inner_ = 0;
};

std::uint64_t gradient_behind(const std::vector<RematSegment>& chain, std::size_t segment) {
  return segment + 1 < chain.size() ? chain[segment + 1].input : 0;
}

// Calls f(end, hold, cost) for every group that may begin at `begin`.
template <class F>
void for_groups(const std::vector<RematSegment>& chain, std::size_t begin, const F& f) {
  f(begin + 1, Hold::keep, keep_cost(chain[begin]));
  if (chain[begin].always_kept) return;
  if (chain[begin].expensive < chain[begin].saved) f(begin + 1, Hold::expensive, expensive_cost(chain[begin]));
  InputGroup group(chain[begin]);
  for (std::size_t end = begin + 1; end <= chain.size() && !chain[end - 1].always_kept; ++end)
    if (!f(end, Hold::input, group.with(chain[end - 1], gradient_behind(chain, end - 1)))) break;
}

// A way to hold the segments so far, and how it came about.
struct Partial {
  std::uint64_t held = 0;
  double seconds = 0;
  std::size_t from = 0;    // where its last group begins
  std::size_t before = 0;  // which partial of that place it continues
  Hold hold = Hold::keep;
};

// Leaves those that no other beats in both, by rising bytes.
void leave_best(std::vector<Partial>& list) {
  std::sort(list.begin(), list.end(), [](const Partial& a, const Partial& b) {
    return std::pair(a.held, a.seconds) < std::pair(b.held, b.seconds);
  });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(list, [&](const Partial& p) {
    if (p.seconds >= least) return true;
    least = p.seconds;
    return false;
  });
}

}  // namespace

RematCost cost_of(const std::vector<RematSegment>& chain, const RematPlan& plan) {
  RematCost total;
  std::uint64_t held = 0;
  std::size_t begin = 0;
  const auto add = [&](const GroupCost& cost) {
    total.peak = std::max(total.peak, held + cost.peak);
    total.seconds += cost.seconds;
    held += cost.held;
  };
  for (const RematPlan::Group& group : plan.groups) {
    const std::size_t end = begin + static_cast<std::size_t>(group.segments);
    if (group.hold == Hold::input && !chain[end - 1].always_kept) {
      InputGroup together(chain[begin]);
      GroupCost cost;
      for (std::size_t k = begin; k < end; ++k) cost = together.with(chain[k], gradient_behind(chain, k));
      add(cost);
    } else {
      for (std::size_t k = begin; k < end; ++k)
        add(group.hold == Hold::expensive && !chain[end - 1].always_kept ? expensive_cost(chain[k])
                                                                         : keep_cost(chain[k]));
    }
    begin = end;
  }
  return total;
}

std::optional<RematPlan> fastest_within(const std::vector<RematSegment>& chain, std::uint64_t budget) {
  std::vector<std::vector<Partial>> best(chain.size() + 1);
  best[0].push_back({});
  for (std::size_t begin = 0; begin < chain.size(); ++begin) {
    leave_best(best[begin]);
    if (best[begin].empty()) continue;
    for_groups(chain, begin, [&](std::size_t end, Hold hold, const GroupCost& cost) {
      for (std::size_t p = 0; p < best[begin].size(); ++p) {
        const Partial& before = best[begin][p];
        if (before.held + cost.peak > budget) break;  // the others hold more
        best[end].push_back({before.held + cost.held, before.seconds + cost.seconds, begin, p, hold});
      }
      return best[begin].front().held + cost.least <= budget;
    });
  }
  leave_best(best.back());
  if (best.back().empty()) return std::nullopt;
  const auto fastest = std::min_element(best.back().begin(), best.back().end(),
                                        [](const Partial& a, const Partial& b) { return a.seconds < b.seconds; });
  std::vector<RematPlan::Group> reversed;
  const Partial* last = &*fastest;
  for (std::size_t at = chain.size(); at > 0; at = last->from, last = &best[at][last->before]) {
    const RematPlan::Group group{static_cast<std::int32_t>(at - last->from), last->hold};
    if (group.hold == Hold::keep && !reversed.empty() && reversed.back().hold == Hold::keep)
      reversed.back().segments += group.segments;
    else
      reversed.push_back(group);
  }
  return RematPlan{{reversed.rbegin(), reversed.rend()}};
}

std::uint64_t smallest_peak(const std::vector<RematSegment>& chain) {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (const RematSegment& s : chain) high += s.input + s.saved + std::max(s.forward, s.backward);
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (fastest_within(chain, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace trireme::planner
