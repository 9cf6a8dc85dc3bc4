#include "trireme/ops/whole_factors.h"

namespace trireme::ops {

ir::Factors whole_factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                          const ir::Attributes&) {
  ir::Factors factors;
  const auto side = [&](std::span<const TensorType> types) {
    std::vector<std::vector<int>> dims;
    for (const TensorType& type : types) {
      std::vector<int>& one = dims.emplace_back();
      for (int i = 0; i < type.shape.rank(); ++i) {
        one.push_back(static_cast<int>(factors.factors.size()));
        factors.factors.push_back({"d" + std::to_string(factors.factors.size()), ir::Factor::Kind::whole});
      }
    }
    return dims;
  };
  factors.inputs = side(inputs);
  factors.outputs = side(outputs);
  return factors;
}

}  // namespace trireme::ops
