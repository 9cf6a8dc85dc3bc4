#pragma once
#include <string>

#include "trireme/passes/gradient_sums.h"

// SGD's momentum, given to the ranks: each has that of its own terms, whose sum is what the optimizer would have. It is
// what is communicated instead of gradients where what is lost on the way should not be kept up by a momentum behind
// it.
namespace trireme::passes {

// Makes the states of the momentum each rank's own.
void own_momenta(ir::Module& module, const std::string& axis);

bool is_own_momentum(const ir::State& state);
// The state that the optimizer has instead of one of these.
std::string shared_momentum(const std::string& own_momentum);

struct OwnMomentum {
  ir::ValueId old;
  ir::ValueId fresh;
};
ir::ValueId own_momentum(GradientSums& sums, const GradientSums::Sum& sum);
// μ · old + clip · gradient, a row of all elements.
OwnMomentum next_momentum(GradientSums& sums, const GradientSums::Sum& sum, ir::ValueId clip);

// The parameter's step along `direction`, the sum of what was communicated. The state of the momentum is set to the
// rank's own.
void descend(GradientSums& sums, const GradientSums::Sum& sum, ir::ValueId direction, const OwnMomentum& own);

}  // namespace trireme::passes
