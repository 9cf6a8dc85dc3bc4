#include "trireme/ops/compress/orthonormalise.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {

ir::OpDef orthonormalise_def() {
  ir::OpDef def;
  def.name = "orthonormalise";
  def.operands = {{.name = "x", .keep_f32 = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_dtype(inputs[0], DType::f32, "x");
    if (inputs[0].shape.rank() != 2 || inputs[0].shape[1] > inputs[0].shape[0])
      fail("'x' must be [n,r] with r at most n, got {}", inputs[0].str());
    return {inputs[0]};
  };
  def.no_gradient = "it belongs to updates, which are not differentiated";
  def.factors = whole_factors;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 4 * static_cast<double>(inputs[0].shape[1]));
  };
  def.with_precision(ir::Precision::keep);
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_orthonormalise_cpu, orthonormalise_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
