#include "trireme/ops/define.h"

#include <algorithm>

namespace trireme::ops {

void expect_compute(const TensorType& type, const char* operand) {
  if (type.dtype != DType::f32 && type.dtype != DType::bf16 && type.dtype != DType::f16)
    fail("'{}' must be f32, bf16 or f16, got {}", operand, type.str());
}

void expect_dtype(const TensorType& type, DType dtype, const char* operand) {
  if (type.dtype != dtype) fail("'{}' must be {}, got {}", operand, name_of(dtype), type.str());
}

void expect_type(const TensorType& type, const TensorType& expected, const char* operand) {
  if (type != expected) fail("'{}' must be {}, got {}", operand, expected.str(), type.str());
}

void expect_shape(const TensorType& type, const Shape& expected, const char* operand) {
  if (!(type.shape == expected)) fail("'{}' must have shape {}, got {}", operand, expected.str(), type.str());
}

ir::OpDef checked(ir::OpDef def) {
  def.infer = [operands = def.operands, infer = std::move(def.infer)](std::span<const TensorType> inputs,
                                                                      const ir::Attributes& attributes) {
    const bool variadic = !operands.empty() && operands.back().variadic;
    const std::size_t least = operands.size() - (variadic ? 1 : 0);
    if (inputs.size() < least || (!variadic && inputs.size() > least))
      fail("expected {}{} operands, got {}", variadic ? "at least " : "", least, inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ir::OperandSpec& operand = operands[std::min(i, operands.size() - 1)];
      if (!inputs[i].present && !operand.optional) fail("operand '{}' is missing", operand.name);
    }
    return infer(inputs, attributes);
  };
  return def;
}

ir::Attributes local_shape(std::span<const TensorType>, std::span<const TensorType> outputs, const ir::Attributes&) {
  return {{"shape", std::vector<std::int64_t>(outputs[0].shape.begin(), outputs[0].shape.end())}};
}

ir::Cost one_pass(std::span<const TensorType> inputs, std::span<const TensorType> outputs, double flops) {
  ir::Cost cost;
  cost.flops = flops * static_cast<double>(outputs.front().elements());
  for (const TensorType& type : inputs) cost.bytes_read += static_cast<double>(type.bytes());
  for (const TensorType& type : outputs) cost.bytes_written += static_cast<double>(type.bytes());
  return cost;
}

ir::Factors aligned_factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs) {
  int rank = 0;
  for (const TensorType& type : inputs) rank = std::max(rank, type.shape.rank());
  for (const TensorType& type : outputs) rank = std::max(rank, type.shape.rank());
  ir::Factors factors;
  for (int i = 0; i < rank; ++i) factors.factors.push_back({"d" + std::to_string(i), ir::Factor::Kind::free});
  const auto dims = [&](const TensorType& type) {
    std::vector<int> indices;
    for (int i = rank - type.shape.rank(); i < rank; ++i) indices.push_back(i);
    return indices;
  };
  for (const TensorType& type : inputs) factors.inputs.push_back(dims(type));
  for (const TensorType& type : outputs) factors.outputs.push_back(dims(type));
  return factors;
}

DType dtype_of(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) fail("there is no dtype '{}'", name);
  return *dtype;
}

DType out_dtype(const std::string& out, DType same) {
  if (out == "same") return same;
  if (out == "f32") return DType::f32;
  fail("'out' must be \"same\" or \"f32\", got \"{}\"", out);
}

void on_cpu(ir::OpDef& def, Prepare prepare, Workspace workspace, Workspace own) {
  ir::KernelDef& kernel = def.kernels[device::Kind::cpu];
  kernel.supports = [](const ir::KernelSpec&) { return true; };
  kernel.prepare = prepare;
  if (workspace != nullptr) kernel.workspace = workspace;
  if (own != nullptr) kernel.own = own;
}

}  // namespace trireme::ops
