#include "trireme/ops/collective/message.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

ir::OpDef message_def(std::string_view name, std::vector<ir::OperandSpec> operands,
                      std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::string(name);
  def.operands = std::move(operands);
  def.attributes = {{"key", std::int64_t{0}}, {"of", std::string()}};
  for (ir::AttributeSpec& a : attributes) def.attributes.push_back(std::move(a));
  def.no_gradient = "values travel after their gradients were made";
  // The receiver expects all of it.
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) { return one_pass(inputs, outputs, 0); };
  def.with_precision(ir::Precision::follow);
  def.traits.collective = true;
  return def;
}

void expect_address(const ir::Attributes& attributes, std::initializer_list<const char*> numbers) {
  for (const char* name : numbers)
    if (attributes.integer(name) < 0) fail("'{}' must not be negative, got {}", name, attributes.integer(name));
}

}  // namespace

ir::OpDef push_def() {
  ir::OpDef def = message_def(kPush, {{.name = "x"}}, {{"peer", std::int64_t{0}}});
  def.infer = [](Inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_address(attributes, {"peer", "key"});
    return {{DType::u8, {1}}};
  };
  return checked(std::move(def));
}

ir::OpDef pull_def() {
  ir::OpDef def =
      message_def(kPull, {{.name = "after", .variadic = true}},
                  {{"peer", std::int64_t{0}}, {"shape", std::vector<std::int64_t>()}, {"dtype", std::string("f32")}});
  def.infer = [](Inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_address(attributes, {"peer", "key"});
    return {{dtype_of(attributes.text("dtype")), Shape(attributes.integers("shape"))}};
  };
  return checked(std::move(def));
}

namespace {

std::vector<ir::AttributeSpec> between_places() {
  return {{"channel", std::string("activation")}, {"from", std::int64_t{0}}, {"to", std::int64_t{1}}};
}

void expect_places(const ir::Attributes& attributes) {
  expect_address(attributes, {"from", "to", "key"});
  if (attributes.integer("from") == attributes.integer("to"))
    fail("place {} cannot send to itself", attributes.integer("from"));
}

}  // namespace

ir::OpDef send_def() {
  ir::OpDef def = message_def(kSend, {{.name = "x"}}, between_places());
  def.infer = [](Inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_places(attributes);
    return {{DType::u8, {1}}};
  };
  return checked(std::move(def));
}

ir::OpDef receive_def() {
  std::vector<ir::AttributeSpec> attributes = between_places();
  attributes.push_back({"shape", std::vector<std::int64_t>()});
  attributes.push_back({"dtype", std::string("f32")});
  ir::OpDef def = message_def(kReceive, {}, std::move(attributes));
  def.infer = [](Inputs, const ir::Attributes& given) -> ir::Types {
    expect_places(given);
    return {{dtype_of(given.text("dtype")), Shape(given.integers("shape"))}};
  };
  return checked(std::move(def));
}

}  // namespace trireme::ops
