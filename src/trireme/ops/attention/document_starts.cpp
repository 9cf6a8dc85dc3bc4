#include "trireme/ops/attention/document_starts.h"

#include "trireme/ops/define.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_document_starts_cpu(const ir::KernelSpec& spec) {
  const std::int64_t length = spec.inputs[0].shape[1], rows = spec.inputs[0].shape[0];
  const std::int64_t end = spec.attributes.integer("end");
  return make_kernel([=](const device::Launch& launch) {
    launch.pool->ranges(rows, 16, [&](std::int64_t begin, std::int64_t stop) {
      for (std::int64_t row = begin; row < stop; ++row) {
        const std::int32_t* const tokens = launch.in<std::int32_t>(0) + row * length;
        std::int32_t* const starts = launch.out<std::int32_t>(0) + row * length;
        std::int32_t start = 0;
        for (std::int32_t i = 0; i < length; ++i) {
          starts[i] = start;
          if (tokens[i] == end) start = i + 1;
        }
      }
    });
  });
}

ir::OpDef document_starts_def() {
  ir::OpDef def;
  def.name = "document_starts";
  def.operands = {{"tokens"}};
  def.attributes = {{"end", std::int64_t{0}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    if (inputs[0].shape.rank() != 2) fail("'tokens' must be [b,s], got {}", inputs[0].str());
    return {inputs[0]};
  };
  def.no_gradient = "positions are whole numbers";
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("b s! -> b s!");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 1);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_document_starts_cpu);
  return checked(def);
}

}  // namespace trireme::ops
