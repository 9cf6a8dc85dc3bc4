#include "trireme/ops/elementwise/cast.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef cast_def() {
  ir::OpDef def = elementwise_def("cast", {"x"}, 1, 0, {{"to", std::string("bf16")}});
  def.traits.linear = ir::Linear::jointly;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    return {{dtype_of(attributes.text("to")), inputs[0].shape}};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (is_float(g.input(0).dtype())) g.set(0, cast(g.grad(), g.input(0).dtype()));
  };
  def.traits.in_place.clear();
  on_cpu(def, prepare_cast_cpu);
  return checked(std::move(def));
}

ir::Value cast(ir::Value x, DType to) { return ir::apply1("cast", {x}, {{"to", std::string(name_of(to))}}); }

}  // namespace trireme::ops
