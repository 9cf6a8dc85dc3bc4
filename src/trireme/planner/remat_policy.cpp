#include "trireme/planner/remat_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/cost/rates.h"
#include "trireme/passes/saved_values.h"

namespace trireme::planner {
namespace {

using cost::Rates;
using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;
using passes::Chain;

// Reads a graph once and answers what each segment holds and costs.
class Measurement {
 public:
  Measurement(const Graph& graph, const Chain& chain, const Rates& rates, bool finely)
      : graph_(graph),
        chain_(chain),
        rates_(rates),
        finely_(finely),
        storage_(passes::storage_of(graph)),
        uses_(graph),
        segment_of_(graph.nodes.size(), kNone),
        last_forward_(graph.values.size(), kNone),
        saved_(graph.values.size(), false) {
    for (std::size_t s = 0; s < chain.segments.size(); ++s)
      for (std::size_t i = chain.segments[s].begin; i < chain.segments[s].end; ++i)
        segment_of_[index(chain.nodes[i])] = static_cast<std::int32_t>(s);
    for (const std::int32_t n : chain.nodes) {
      for (const ValueId id : graph.nodes[index(n)].inputs)
        if (id != kNone) last_forward_[index(storage_[index(id)])] = n;
      for (const ValueId id : graph.nodes[index(n)].outputs) last_forward_[index(id)] = n;
    }
    for (const passes::SavedValue& value : passes::saved_values(graph)) saved_[index(value.value)] = true;
    RematPlan cheapest;
    cheapest.groups.assign(chain.segments.size(), {1, Hold::expensive});
    cheap_ = forgotten_values(graph, chain, cheapest);
  }

  std::vector<RematSegment> run() {
    std::vector<RematSegment> segments(chain_.segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) segments[s] = measure(s);
    measure_gradients(segments);
    return segments;
  }

 private:
  std::uint64_t bytes(ValueId id) const { return id == kNone ? 0 : graph_.type(id).bytes(); }

  RematSegment measure(std::size_t s) const {
    const passes::Segment& segment = chain_.segments[s];
    const ValueId output = chain_.output(s);
    RematSegment m;
    m.always_kept = segment.gradients_follow;
    m.input = bytes(segment.input);
    m.reads_input = segment.input != kNone && saved_[index(segment.input)];
    std::uint64_t unsaved = 0;
    std::uint64_t alive = 0;
    std::map<std::int32_t, std::vector<ValueId>> dying;
    std::vector<ValueId> wanted;
    std::vector<CheapNode> cheap;
    for (std::size_t i = segment.begin; i < segment.end; ++i) {
      const std::int32_t n = chain_.nodes[i];
      for (const ValueId id : graph_.nodes[index(n)].outputs) {
        if (storage_[index(id)] != id) continue;
        const bool held = saved_[index(id)] && id != output;
        if (held) {
          m.saved += bytes(id);
          wanted.push_back(id);
          if (cheap_[index(id)] && bytes(id) > 0) {
            if (cheap.empty() || cheap.back().node != n)
              cheap.push_back({n, static_cast<std::int32_t>(i - segment.begin)});
            cheap.back().bytes += bytes(id);
          }
        }
        alive += bytes(id);
        unsaved += held ? 0 : bytes(id);
        dying[last_forward_[index(id)]].push_back(id);
      }
      m.forward = std::max(m.forward, unsaved);
      m.running = std::max(m.running, alive);
      for (const ValueId id : dying[n]) {
        alive -= bytes(id);
        unsaved -= saved_[index(id)] && id != output ? 0 : bytes(id);
      }
    }
    m.cheap = cheap_sets(s, m.saved, cheap);
    const auto nothing = [](ValueId) { return false; };
    m.last_time = time_of(s, wanted, nothing);
    if (output != kNone) wanted.push_back(output);
    m.inner_time = time_of(s, wanted, nothing);
    return m;
  }

  // A node that makes values which are saved and cheap to make again.
  struct CheapNode {
    std::int32_t node = kNone;
    std::int32_t place = 0;   // in its segment
    std::uint64_t bytes = 0;  // of those values
    bool again = true;
  };

  // What of `nodes` can be made again: all of them, and those sets that no other beats in bytes and seconds.
  std::vector<RematSegment::Cheap> cheap_sets(std::size_t s, std::uint64_t saved, std::vector<CheapNode>& nodes) const {
    std::vector<RematSegment::Cheap> sets;
    if (nodes.empty()) return sets;
    sets.push_back(cheap_set(s, saved, nodes));
    if (!finely_) return sets;
    // What is small (a norm's statistics) is not worth a choice: it is held unless all are made again.
    std::vector<CheapNode*> large;
    std::uint64_t total = 0;
    for (const CheapNode& node : nodes) total += node.bytes;
    for (CheapNode& node : nodes) {
      node.again = false;
      if (node.bytes >= total / 32) large.push_back(&node);
    }
    constexpr std::size_t kEverySet = 5;
    const auto add = [&] { sets.push_back(cheap_set(s, saved, nodes)); };
    if (large.size() <= kEverySet) {
      for (std::size_t set = 1; set < std::size_t{1} << large.size(); ++set) {
        for (std::size_t i = 0; i < large.size(); ++i) large[i]->again = (set >> i & 1U) != 0;
        add();
      }
    } else {
      // Those that are worth most alone, then more and more of them.
      const auto seconds_per_byte = [&](const CheapNode* node) {
        return nominal_seconds(graph_, graph_.nodes[index(node->node)], rates_) / static_cast<double>(node->bytes);
      };
      std::stable_sort(large.begin(), large.end(), [&](const CheapNode* a, const CheapNode* b) {
        return seconds_per_byte(a) < seconds_per_byte(b);
      });
      for (CheapNode* node : large) {
        node->again = true;
        add();
      }
    }
    std::stable_sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) {
      return std::pair(a.held, a.time) < std::pair(b.held, b.time);
    });
    double least = std::numeric_limits<double>::infinity();
    std::erase_if(sets, [&](const RematSegment::Cheap& set) {
      return std::exchange(least, std::min(least, set.time)) <= set.time;
    });
    return sets;
  }

  RematSegment::Cheap cheap_set(std::size_t s, std::uint64_t saved, const std::vector<CheapNode>& nodes) const {
    RematSegment::Cheap set{saved, 0};
    std::vector<ValueId> wanted;
    std::vector<std::int32_t> again;
    for (const CheapNode& node : nodes) {
      if (!node.again) {
        set.kept.push_back(node.place);
        continue;
      }
      set.held -= node.bytes;
      again.push_back(node.node);
      for (const ValueId id : graph_.nodes[index(node.node)].outputs)
        if (cheap_[index(id)] && saved_[index(id)]) wanted.push_back(id);
    }
    set.time = time_of(s, wanted, [&](ValueId id) {
      return !cheap_[index(id)] ||
             (saved_[index(id)] && std::find(again.begin(), again.end(), uses_.producer[index(id)]) == again.end());
    });
    return set;
  }

  // Seconds to make `wanted` again from what enters segment s and from what is there.
  template <class There>
  double time_of(std::size_t s, const std::vector<ValueId>& wanted, const There& there) const {
    std::vector<std::int32_t> open;
    std::set<std::int32_t> nodes;
    const auto want = [&](ValueId id) {
      const std::int32_t producer = id == kNone ? kNone : uses_.producer[index(id)];
      if (producer == kNone || segment_of_[index(producer)] != static_cast<std::int32_t>(s) || there(id)) return;
      if (nodes.insert(producer).second) open.push_back(producer);
    };
    for (const ValueId id : wanted) want(id);
    double sum = 0;
    while (!open.empty()) {
      const Node& node = graph_.nodes[index(open.back())];
      open.pop_back();
      sum += nominal_seconds(graph_, node, rates_);
      for (const ValueId id : node.inputs) want(id);
    }
    return sum;
  }

  // A gradient node belongs to the segment whose values it reads, or to that of the node before it.
  void measure_gradients(std::vector<RematSegment>& segments) const {
    std::map<ValueId, std::size_t> entered;
    for (std::size_t s = 0; s < chain_.segments.size(); ++s)
      if (chain_.segments[s].input != kNone) entered[chain_.segments[s].input] = s;
    std::vector<std::int32_t> last(graph_.values.size(), kNone);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const ValueId id : graph_.nodes[n].inputs)
        if (id != kNone) last[index(storage_[index(id)])] = static_cast<std::int32_t>(n);
    std::size_t at = segments.size() - 1;
    std::uint64_t alive = 0;
    std::map<std::int32_t, std::uint64_t> dying;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!passes::is_gradient(node.phase)) continue;
      std::int64_t reads = -1;
      for (const ValueId id : node.inputs) {
        if (id == kNone) continue;
        const ValueId owner = storage_[index(id)];
        const auto found = entered.find(owner);
        const std::int32_t producer = uses_.producer[index(owner)];
        if (found != entered.end())
          reads = std::max(reads, static_cast<std::int64_t>(found->second));
        else if (producer != kNone && segment_of_[index(producer)] != kNone)
          reads = std::max(reads, static_cast<std::int64_t>(segment_of_[index(producer)]));
      }
      if (reads >= 0) at = std::min(at, static_cast<std::size_t>(reads));
      for (const ValueId id : node.outputs) {
        // Gradients of parameters go to their sums, which are there anyway.
        if (storage_[index(id)] != id || uses_.escapes[index(id)] || last[index(id)] == kNone) continue;
        alive += bytes(id);
        dying[last[index(id)]] += bytes(id);
      }
      segments[at].backward = std::max(segments[at].backward, alive);
      const auto dead = dying.find(static_cast<std::int32_t>(n));
      if (dead != dying.end()) alive -= dead->second;
    }
  }

  const Graph& graph_;
  const Chain& chain_;
  const Rates& rates_;
  bool finely_;
  std::vector<ValueId> storage_;
  ir::Uses uses_;
  std::vector<std::int32_t> segment_of_;    // by node
  std::vector<std::int32_t> last_forward_;  // by value: the last forward node that touches its bytes
  std::vector<bool> saved_;
  std::vector<bool> cheap_;
};

// Segments of each layer, in order.
std::vector<std::int32_t> layer_sizes(const Chain& chain) {
  std::vector<std::int32_t> sizes;
  for (std::size_t s = 0; s < chain.segments.size(); ++s) {
    const passes::Segment& segment = chain.segments[s];
    if (s == 0 || segment.begins_chunk || segment.layer != chain.segments[s - 1].layer) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
}

RematPlan every(const Chain& chain, std::int64_t k) {
  RematPlan plan;
  std::int64_t in_group = 0;
  std::size_t at = 0;
  for (const std::int32_t size : layer_sizes(chain)) {
    if (chain.segments[at].begins_chunk) in_group = 0;
    if (in_group == 0) plan.groups.push_back({0, Hold::input});
    plan.groups.back().segments += size;
    in_group = (in_group + 1) % k;
    at += static_cast<std::size_t>(size);
  }
  return plan;
}

// Neighbours joined until the chain is short enough to be solved in a moment.
struct Coarse {
  Chain chain;
  std::vector<std::int32_t> sizes;  // segments of the fine chain in each

  bool joined() const {
    return chain.segments.size() < static_cast<std::size_t>(std::reduce(sizes.begin(), sizes.end()));
  }
};

Coarse coarsen(const Chain& fine, std::size_t most) {
  Coarse coarse{{fine.nodes, {}}, {}};
  const std::size_t together = (fine.segments.size() + most - 1) / most;
  for (std::size_t s = 0; s < fine.segments.size(); ++s) {
    // The last stays alone, and is kept where its gradients follow.
    if (s % together == 0 || fine.segments[s].begins_chunk || s + 1 == fine.segments.size()) {
      coarse.chain.segments.push_back(fine.segments[s]);
      coarse.sizes.push_back(0);
    }
    coarse.chain.segments.back().end = fine.segments[s].end;
    coarse.chain.segments.back().gradients_follow = fine.segments[s].gradients_follow;
    ++coarse.sizes.back();
  }
  return coarse;
}

RematPlan refined(const RematPlan& plan, const Coarse& coarse) {
  RematPlan fine;
  std::size_t at = 0;
  for (const RematPlan::Group& group : plan.groups) {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < group.segments; ++i) count += coarse.sizes[at++];
    if (group.hold == Hold::expensive)
      fine.groups.insert(fine.groups.end(), index(count), {1, Hold::expensive, group.kept});
    else
      fine.groups.push_back({count, group.hold});
  }
  return fine;
}

// Chains longer than this are solved coarsely.
constexpr std::size_t kSegments = 256;

// What needs no budget: what is cheap made again, and every:K.
std::vector<RematPlan> simple_plans(const Chain& chain) {
  std::vector<RematPlan> plans = {{std::vector<RematPlan::Group>(chain.segments.size(), {1, Hold::expensive})}};
  const auto layers = static_cast<std::int64_t>(layer_sizes(chain).size());
  for (std::int64_t k = 1; k < layers; k = std::max(k + 1, k * 9 / 8)) plans.push_back(every(chain, k));
  return plans;
}

RematPlan keep_all(const Chain& chain) { return {{{static_cast<std::int32_t>(chain.segments.size()), Hold::keep}}}; }

}  // namespace

std::vector<RematSegment> measure_chain(const Graph& graph, const Chain& chain, const Rates& rates, bool finely) {
  return Measurement(graph, chain, rates, finely).run();
}

RematPlan plan_remat(const Chain& chain, const RematPolicy& policy) {
  using Kind = RematPolicy::Kind;
  const auto layers = static_cast<std::int64_t>(layer_sizes(chain).size());
  RematPlan plan;
  switch (policy.kind) {
    case Kind::selective: plan.groups.assign(chain.segments.size(), {1, Hold::expensive}); break;
    case Kind::full: plan = every(chain, 1); break;
    case Kind::sqrt:
      plan = every(chain, std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(layers)))));
      break;
    case Kind::every: plan = every(chain, policy.layers); break;
    case Kind::none:
    case Kind::optimal: fail("rematerialisation \"{}\" needs no plan, or a budget", policy.name);
  }
  return plan;
}

bool recomputes(const Graph& graph, const Chain& chain, const RematPlan& plan) {
  const std::vector<bool> forgotten = forgotten_values(graph, chain, plan);
  const auto saved = passes::saved_values(graph);
  return std::any_of(saved.begin(), saved.end(), [&](const auto& value) { return forgotten[index(value.value)]; });
}

OptimalRemat optimal_remat(const Graph& graph, const Chain& fine, std::uint64_t budget, const Rates& rates,
                           const std::function<std::uint64_t(const RematPlan&)>& lowered_peak) {
  const std::vector<RematSegment> fine_chain = measure_chain(graph, fine, rates);
  OptimalRemat best;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::vector<std::pair<RematPlan, std::uint64_t>> seen;  // lowering takes time, and searches meet
  const auto peak_of = [&](const RematPlan& plan) {
    const auto found = std::find_if(seen.begin(), seen.end(), [&](const auto& one) { return one.first == plan; });
    if (found != seen.end()) return found->second;
    return seen.emplace_back(plan, lowered_peak(plan)).second;
  };
  const auto slower = [&](const RematPlan& plan) {
    return best.fits && cost_of(fine_chain, plan).seconds >= best_seconds;
  };
  const auto consider = [&](const RematPlan& plan) {
    if (slower(plan)) return;
    const std::uint64_t peak = peak_of(plan);
    const bool fits = peak <= budget;
    if (fits || (!best.fits && (best.plan.groups.empty() || peak < best.peak))) {
      best = {plan, peak, fits};
      best_seconds = cost_of(fine_chain, plan).seconds;
    }
  };
  if (budget == 0) budget = peak_of(plan_remat(fine, {.kind = RematPolicy::Kind::sqrt, .name = "sqrt"}));
  const RematPlan keep = keep_all(fine);
  consider(keep);
  if (best.fits) return best;  // nothing need be forgotten

  // The model of the chain leaves out what lowering finds (buffers used in place, workspaces), so the budget it is
  // given is moved until the program just fits.
  constexpr int kTrials = 12;
  const Coarse coarse = coarsen(fine, kSegments);
  const auto search = [&](const std::vector<RematSegment>& chain) {
    std::uint64_t low = smallest_peak(chain);
    std::uint64_t high = cost_of(fine_chain, keep).peak;
    for (int trial = 0; trial < kTrials && low <= high; ++trial) {
      const std::uint64_t middle = low + (high - low) / 2;
      const auto plan = fastest_within(chain, middle);
      if (!plan) break;
      const RematPlan tried = refined(*plan, coarse);
      if (slower(tried) || peak_of(tried) <= budget) {
        consider(tried);
        low = middle + 1;
      } else {
        if (!best.fits) consider(tried);
        high = middle - 1;
      }
    }
    // Nor does what lowering finds grow evenly with the budget: a little above the last that fitted, others may.
    for (int i = 1; i <= 6 && best.fits; ++i)
      if (const auto plan = fastest_within(chain, low + low * static_cast<std::uint64_t>(i) / 100))
        consider(refined(*plan, coarse));
  };
  // All or nothing of what is cheap first: the finer choice can only gain, whatever lowering makes of it.
  search(measure_chain(graph, coarse.chain, rates, false));
  if (!coarse.joined()) search(measure_chain(graph, coarse.chain, rates, true));
  // For the same reason a simple plan may need less than the model thinks.
  for (const RematPlan& plan : simple_plans(fine)) consider(plan);
  return best;
}

std::vector<RematPlan> remat_candidates(const Graph& graph, const Chain& fine, const Rates& rates) {
  constexpr std::uint64_t kBudgets = 16;
  const std::vector<RematSegment> fine_chain = measure_chain(graph, fine, rates);
  const Coarse coarse = coarsen(fine, kSegments);
  const std::vector<RematSegment> chain = measure_chain(graph, coarse.chain, rates, false);
  struct Candidate {
    RematCost cost;
    RematPlan plan;
  };
  std::vector<Candidate> candidates;
  const auto add = [&](RematPlan plan) {
    const RematCost cost = cost_of(fine_chain, plan);
    candidates.push_back({cost, std::move(plan)});
  };
  add(keep_all(fine));
  const std::uint64_t least = smallest_peak(chain);
  const std::uint64_t most = candidates.front().cost.peak;
  for (std::uint64_t i = 0; i < kBudgets && least < most; ++i)
    if (const auto plan = fastest_within(chain, least + (most - least) / kBudgets * i)) add(refined(*plan, coarse));
  for (RematPlan& plan : simple_plans(fine)) add(std::move(plan));
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.cost.seconds, a.cost.peak) < std::pair(b.cost.seconds, b.cost.peak);
  });
  std::vector<RematPlan> plans;
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (Candidate& candidate : candidates)
    if (std::exchange(smallest, std::min(smallest, candidate.cost.peak)) > candidate.cost.peak)
      plans.push_back(std::move(candidate.plan));
  return plans;
}

}  // namespace trireme::planner
