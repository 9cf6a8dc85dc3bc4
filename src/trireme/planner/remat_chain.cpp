#include "trireme/planner/remat_chain.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::planner {
namespace {

// What a group contributes, whatever comes before and after it.
struct GroupCost {
  std::uint64_t held = 0;   // from its forward to its gradients
  std::uint64_t peak = 0;   // in addition to what earlier groups hold
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

GroupCost expensive_cost(const RematSegment& s, const RematSegment::Cheap& cheap) {
  GroupCost cost;
  cost.held = s.input + cheap.held;  // cheap values may be made from what enters
  cost.peak = std::max(s.input + cheap.held + s.running, s.input + s.saved + std::max(s.forward, s.backward));
  cost.seconds = cheap.time;
  return cost;
}

GroupCost expensive_cost(const RematSegment& s, const std::vector<std::int32_t>& kept) {
  if (s.cheap.empty() && kept.empty()) return expensive_cost(s, RematSegment::Cheap{s.saved, 0});  // nothing is
  const auto found =
      std::find_if(s.cheap.begin(), s.cheap.end(), [&](const auto& cheap) { return cheap.kept == kept; });
  if (found == s.cheap.end()) fail("the plan keeps other cheap values than the chain has figures for");
  return expensive_cost(s, *found);
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
  std::uint64_t made_ = 0;     // by the segments so far, when recomputed
  std::uint64_t running_ = 0;  // peaks: forward, gradients, recomputation
  std::uint64_t backward_ = 0;
  std::uint64_t again_ = 0;
  double inner_ = 0;
};

std::uint64_t gradient_behind(const std::vector<RematSegment>& chain, std::size_t segment) {
  return segment + 1 < chain.size() ? chain[segment + 1].input : 0;
}

// Calls f(end, hold, cost, cheap) for every group that may begin at `begin`; `cheap` says which of the segment's it is.
template <class F>
void for_groups(const std::vector<RematSegment>& chain, std::size_t begin, const F& f) {
  f(begin + 1, Hold::keep, keep_cost(chain[begin]), 0);
  if (chain[begin].always_kept) return;
  for (std::size_t i = 0; i < chain[begin].cheap.size(); ++i)
    f(begin + 1, Hold::expensive, expensive_cost(chain[begin], chain[begin].cheap[i]), i);
  InputGroup group(chain[begin]);
  for (std::size_t end = begin + 1; end <= chain.size() && !chain[end - 1].always_kept; ++end)
    if (!f(end, Hold::input, group.with(chain[end - 1], gradient_behind(chain, end - 1)), 0)) break;
}

// A way to hold the segments so far, and how it came about.
struct Partial {
  std::uint64_t held = 0;
  double seconds = 0;
  std::size_t from = 0;    // where its last group begins
  std::size_t before = 0;  // which partial of that place it continues
  Hold hold = Hold::keep;
  std::size_t cheap = 0;  // expensive: which of its segment's
};

// Those of two lists that no other beats in both bytes and seconds. All three by rising bytes and falling seconds.
void merge_best(std::vector<Partial>& list, const std::vector<Partial>& more, std::vector<Partial>& scratch) {
  scratch.clear();
  double least = std::numeric_limits<double>::infinity();
  const auto take = [&](const Partial& p) {
    if (p.seconds >= least) return;
    least = p.seconds;
    scratch.push_back(p);
  };
  std::size_t i = 0;
  for (const Partial& p : more) {
    for (; i < list.size() && std::pair(list[i].held, list[i].seconds) <= std::pair(p.held, p.seconds); ++i)
      take(list[i]);
    take(p);
  }
  for (; i < list.size(); ++i) take(list[i]);
  list.swap(scratch);
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
        add(group.hold == Hold::expensive && !chain[end - 1].always_kept ? expensive_cost(chain[k], group.kept)
                                                                         : keep_cost(chain[k]));
    }
    begin = end;
  }
  return total;
}

std::optional<RematPlan> fastest_within(const std::vector<RematSegment>& chain, std::uint64_t budget) {
  std::vector<std::vector<Partial>> best(chain.size() + 1);
  best[0].push_back({});
  std::vector<Partial> more;
  std::vector<Partial> scratch;
  for (std::size_t begin = 0; begin < chain.size(); ++begin) {
    if (best[begin].empty()) continue;
    for_groups(chain, begin, [&](std::size_t end, Hold hold, const GroupCost& cost, std::size_t cheap) {
      more.clear();
      for (std::size_t p = 0; p < best[begin].size(); ++p) {
        const Partial& before = best[begin][p];
        if (before.held + cost.peak > budget) break;  // the others hold more
        more.push_back({before.held + cost.held, before.seconds + cost.seconds, begin, p, hold, cheap});
      }
      if (!more.empty()) merge_best(best[end], more, scratch);
      return best[begin].front().held + cost.least <= budget;
    });
  }
  if (best.back().empty()) return std::nullopt;
  std::vector<RematPlan::Group> reversed;
  const Partial* last = &best.back().back();  // the fastest
  for (std::size_t at = chain.size(); at > 0; at = last->from, last = &best[at][last->before]) {
    RematPlan::Group group{static_cast<std::int32_t>(at - last->from), last->hold};
    if (group.hold == Hold::expensive) group.kept = chain[last->from].cheap[last->cheap].kept;
    if (group.hold == Hold::keep && !reversed.empty() && reversed.back().hold == Hold::keep)
      reversed.back().segments += group.segments;
    else
      reversed.push_back(std::move(group));
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
