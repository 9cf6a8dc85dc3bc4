#include "trireme/ops/collective/message.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

ir::OpDef message_def(std::string_view name, ir::OperandSpec operand, std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::string(name);
  def.operands = {std::move(operand)};
  def.attributes = {{"peer", std::int64_t{0}}, {"key", std::int64_t{0}}, {"of", std::string()}};
  for (ir::AttributeSpec& a : attributes) def.attributes.push_back(std::move(a));
  def.no_gradient = "values travel after their gradients were made";
  // Whoever is at the other end expects all of it.
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) { return one_pass(inputs, outputs, 0); };
  def.with_precision(ir::Precision::follow);
  def.traits.collective = true;
  return def;
}

void expect_address(const ir::Attributes& attributes) {
  for (const char* name : {"peer", "key"})
    if (attributes.integer(name) < 0) fail("'{}' must not be negative, got {}", name, attributes.integer(name));
}

}  // namespace

ir::OpDef push_def() {
  ir::OpDef def = message_def(kPush, {.name = "x"}, {});
  def.infer = [](Inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_address(attributes);
    return {{DType::u8, {1}}};
  };
  return checked(std::move(def));
}

ir::OpDef pull_def() {
  ir::OpDef def = message_def(kPull, {.name = "after", .variadic = true},
                              {{"shape", std::vector<std::int64_t>()}, {"dtype", std::string("f32")}});
  def.infer = [](Inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_address(attributes);
    return {{dtype_of(attributes.text("dtype")), Shape(attributes.integers("shape"))}};
  };
  return checked(std::move(def));
}

}  // namespace trireme::ops
