#include "trireme/ops/shape/transpose.h"

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"

namespace trireme::ops {

ir::OpDef transpose_def() {
  ir::OpDef def;
  def.name = "transpose";
  def.operands = {{"x"}};
  def.attributes = {{"perm", std::vector<std::int64_t>()}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const std::vector<std::int64_t>& perm = attributes.integers("perm");
    const int rank = inputs[0].shape.rank();
    std::vector<bool> seen(static_cast<std::size_t>(rank));
    bool valid = static_cast<int>(perm.size()) == rank;
    TensorType type = inputs[0];
    for (int i = 0; valid && i < rank; ++i) {
      const std::int64_t from = perm[static_cast<std::size_t>(i)];
      valid = from >= 0 && from < rank && !seen[static_cast<std::size_t>(from)];
      if (!valid) break;
      seen[static_cast<std::size_t>(from)] = true;
      type.shape[i] = inputs[0].shape[static_cast<int>(from)];
    }
    if (!valid)
      fail("'perm' must be a permutation of the {} dimensions of {}, got {}", rank, inputs[0].str(), Shape(perm).str());
    return {type};
  };
  def.gradient = [](ir::GradientContext& g) {
    const std::vector<std::int64_t>& perm = g.attributes().integers("perm");
    std::vector<std::int64_t> inverse(perm.size());
    for (std::size_t i = 0; i < perm.size(); ++i)
      inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
    g.set(0, transpose(g.grad(), inverse));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    ir::Factors factors = aligned_factors(inputs, {});
    std::vector<int>& dims = factors.outputs.emplace_back();
    for (const std::int64_t from : attributes.integers("perm")) dims.push_back(static_cast<int>(from));
    return factors;
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 0);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.pads = true;
  on_cpu(def, prepare_transpose_cpu);
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::Value transpose(ir::Value x, const std::vector<std::int64_t>& perm) {
  return ir::apply1("transpose", {x}, {{"perm", perm}});
}

}  // namespace trireme::ops
