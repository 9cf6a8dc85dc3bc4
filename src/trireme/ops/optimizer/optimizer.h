#pragma once
#include <string>

#include "trireme/ops/define.h"

// What the optimizers share.
namespace trireme::ops {

// A definition of an update rule. Operands: `tensors` f32 operands of the parameter's shape (the parameter first), with
// "grad" of any compute dtype in second place, then f32 scalars, then optionally "keep", f32 of the parameter's shape,
// by which every new value is multiplied: where it is 0, parameter and states become and stay 0. Outputs: the new value
// of each tensor but the gradient, then a copy of the parameter in the dtype of attribute `low`, unless that is "none".
// In place: each tensor's new value over the old one, and the copy over the gradient where both have as many bytes.
ir::OpDef update_rule(std::string name, std::vector<std::string> tensors, std::vector<std::string> scalars,
                      double flops, std::vector<ir::AttributeSpec> attributes);

// Calls f(T{}, L{}, has_low) for the gradient's and the low copy's element types.
template <class F>
std::shared_ptr<device::Kernel> dispatch_update(const ir::KernelSpec& spec, F&& f) {
  const std::string& low = spec.attributes.text("low");
  return dispatch_compute(spec.inputs[1].dtype, [&](auto grad) {
    if (low == "none") return f(grad, float{}, std::false_type{});
    return dispatch_compute(dtype_of(low), [&](auto copy) { return f(grad, copy, std::true_type{}); });
  });
}

}  // namespace trireme::ops
