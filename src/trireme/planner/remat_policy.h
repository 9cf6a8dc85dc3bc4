#pragma once
#include <functional>
#include <string>

#include "trireme/cost/rates.h"
#include "trireme/planner/remat_chain.h"

namespace trireme::planner {

// The forward phase of a graph with its gradients, in the numbers that rematerialisation is decided by. Seconds are
// those of a device with `rates`. Not `finely`: of what is cheap in a segment, all or nothing is made again.
std::vector<RematSegment> measure_chain(const ir::Graph& graph, const passes::Chain& chain, const cost::Rates& rates,
                                        bool finely = true);

// How the values to recompute are chosen: memory.remat.
struct RematPolicy {
  enum class Kind : std::uint8_t { none, every, sqrt, selective, optimal, full };
  Kind kind = Kind::none;
  std::int64_t layers = 1;    // of `every`
  std::string name = "none";  // in messages, as the configuration spells it
};

// The plan of a policy that needs no budget:
//   every       the input of every `layers`-th layer is held, the rest recomputed
//   sqrt        `every` with the square root of the number of layers
//   full        `every` with 1
//   selective   what is cheap is recomputed (norms, activations, sums), where its operands are held anyway
RematPlan plan_remat(const passes::Chain& chain, const RematPolicy& policy);

// Whether the plan forgets something that the gradients read.
bool recomputes(const ir::Graph& graph, const passes::Chain& chain, const RematPlan& plan);

// `optimal`: the plan of least time among those whose program, as lowered, needs at most `budget` bytes; 0: as many as
// `sqrt` needs. `lowered_peak` gives what a plan's program needs.
struct OptimalRemat {
  RematPlan plan;
  std::uint64_t peak = 0;  // of its program
  bool fits = false;       // false: no plan does, and this is the smallest found
};
OptimalRemat optimal_remat(const ir::Graph& graph, const passes::Chain& chain, std::uint64_t budget,
                           const cost::Rates& rates,
                           const std::function<std::uint64_t(const RematPlan&)>& lowered_peak);

// Plans by rising time and, by the chain's numbers, falling peak: those of least recomputation for falling budgets, and
// the simple policies where they are not worse in both. Of what is cheap in a segment they make all or nothing again.
// The first forgets nothing.
std::vector<RematPlan> remat_candidates(const ir::Graph& graph, const passes::Chain& chain, const cost::Rates& rates);

}  // namespace trireme::planner
