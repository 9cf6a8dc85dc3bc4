#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// Factors of an op none of whose dimensions may be cut: every operand has dimensions of its own.
ir::Factors whole_factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                          const ir::Attributes& attributes);

}  // namespace trireme::ops
