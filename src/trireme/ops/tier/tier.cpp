#include "trireme/ops/tier/tier.h"

#include <cstring>

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// Where both tiers are one memory, a copy between them is a copy like any other.
std::shared_ptr<device::Kernel> prepare_move_cpu(const ir::KernelSpec& spec) {
  return make_kernel([bytes = spec.inputs[0].bytes()](const device::Launch& launch) {
    if (bytes > 0) std::memcpy(launch.out<std::byte>(0), launch.in<std::byte>(0), bytes);
  });
}

ir::OpDef move_def(std::string_view name, std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::string(name);
  def.operands = {{"x"}};
  def.attributes = std::move(attributes);
  def.no_gradient = "values are moved after their gradients were made";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return aligned_factors(inputs, outputs);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const auto bytes = static_cast<double>(inputs[0].bytes());
    return ir::Cost{0, bytes, bytes};
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_move_cpu);
  return def;
}

// The first dimension has another extent in each operand and in the result.
ir::Factors pieces_factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                           const ir::Attributes&) {
  ir::Factors factors = aligned_factors(inputs, outputs);
  for (auto* sides : {&factors.inputs, &factors.outputs})
    for (std::vector<int>& dims : *sides) {
      if (dims.empty()) continue;
      dims.front() = static_cast<int>(factors.factors.size());
      factors.factors.push_back({"piece" + std::to_string(factors.factors.size()), ir::Factor::Kind::whole});
    }
  return factors;
}

ir::OpDef view_def(std::string_view name) {
  ir::OpDef def;
  def.name = std::string(name);
  def.no_gradient = "states are cut after their gradients were made";
  def.factors = pieces_factors;
  def.cost = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) { return ir::Cost{}; };
  def.with_precision(ir::Precision::follow);
  def.traits.view = true;
  return def;
}

}  // namespace

ir::OpDef store_def() {
  ir::OpDef def = move_def(kStore, {{"tier", std::int64_t{2}}});
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    if (const std::int64_t tier = attributes.integer("tier"); tier != 1 && tier != 2)
      fail("'tier' must be 1 (host) or 2 (disk), got {}", tier);
    return {inputs[0]};
  };
  return checked(std::move(def));
}

ir::OpDef load_def() {
  ir::OpDef def = move_def(kLoad, {});
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types { return {inputs[0]}; };
  return checked(std::move(def));
}

ir::OpDef rows_def() {
  ir::OpDef def = view_def(kRows);
  def.operands = {{"x"}};
  def.attributes = {{"start", std::int64_t{0}}, {"end", std::int64_t{0}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const std::int64_t start = attributes.integer("start");
    const std::int64_t end = attributes.integer("end");
    TensorType type = inputs[0];
    if (type.shape.rank() == 0 || start < 0 || end < start || end > type.shape[0])
      fail("[{}, {}) must be rows of {}", start, end, type.str());
    type.shape[0] = end - start;
    return {type};
  };
  return checked(std::move(def));
}

ir::OpDef assemble_def() {
  ir::OpDef def = view_def(kAssemble);
  def.operands = {{.name = "pieces", .variadic = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    if (inputs.empty()) fail("expected at least one piece, got none");
    TensorType type = inputs[0];
    if (type.shape.rank() == 0) fail("a piece must have rows, got {}", type.str());
    for (const TensorType& piece : inputs.subspan(1)) {
      TensorType expected = inputs[0];
      if (piece.shape.rank() == type.shape.rank()) expected.shape[0] = piece.shape[0];
      expect_type(piece, expected, "pieces");
      type.shape[0] += piece.shape[0];
    }
    return {type};
  };
  return checked(std::move(def));
}

std::size_t rows_offset(const ir::Node& node, const TensorType& x) {
  const auto start = static_cast<std::size_t>(node.attributes.integer("start"));
  return start == 0 ? 0 : x.bytes() / static_cast<std::size_t>(x.shape[0]) * start;
}

}  // namespace trireme::ops
