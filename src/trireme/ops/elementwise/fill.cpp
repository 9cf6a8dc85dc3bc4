#include "trireme/ops/elementwise/fill.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef fill_def() {
  ir::OpDef def = elementwise_def(
      "fill", {}, 1, 0, {{"value", 0.0}, {"shape", std::vector<std::int64_t>()}, {"dtype", std::string("f32")}});
  def.infer = [](std::span<const TensorType>, const ir::Attributes& attributes) -> ir::Types {
    const std::vector<std::int64_t>& dims = attributes.integers("shape");
    for (const std::int64_t extent : dims)
      if (extent < 0) fail("'shape' must have no negative extent, got {}", Shape(dims).str());
    return {{dtype_of(attributes.text("dtype")), Shape(dims)}};
  };
  def.no_gradient = "a constant has no inputs";
  def.localize = local_shape;
  def.traits.pads = false;
  on_cpu(def, prepare_fill_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
