#include "trireme/ops/quantize/round_to_codes.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

struct Rows {
  CodeFormat format;
  int split = 0;
  std::int64_t n = 0, k = 0;

  Rows(const TensorType& x, const ir::Attributes& attributes) : format(code_format(attributes)) {
    const std::int64_t given = attributes.integer("split");
    const std::int64_t at = given == -1 ? x.shape.rank() - 1 : given;
    if (at < 0 || at >= x.shape.rank())
      fail("'split' must be -1 or from 0 to {}, got {} for {}", x.shape.rank() - 1, given, x.str());
    split = static_cast<int>(at);
    n = x.shape.slice(0, split).elements();
    k = x.shape.slice(split, x.shape.rank()).elements();
  }
};

}  // namespace

ir::OpDef round_to_codes_def() {
  ir::OpDef def;
  def.name = "round_to_codes";
  def.operands = {{.name = "x", .keep_f32 = true}};
  def.attributes = {{"bits", std::int64_t{8}}, {"group", std::int64_t{0}}, {"split", std::int64_t{-1}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::f32, "x");
    const Rows rows(inputs[0], attributes);
    if (const std::string problem = rows.format.problem(rows.k); !problem.empty()) fail("{}", problem);
    return {inputs[0]};
  };
  def.gradient = [](ir::GradientContext& g) { g.set(0, g.grad()); };
  // A row's elements share scales.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    const Rows rows(inputs[0], attributes);
    std::string text;
    for (int d = 0; d < inputs[0].shape.rank(); ++d) text += fmt::format("d{}{} ", d, d < rows.split ? "" : "!");
    return ir::parse_factors(text + "-> " + text);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 4);
  };
  def.with_precision(ir::Precision::keep);
  def.traits.pads = true;  // rows of zeros stay zeros
  on_cpu(def, prepare_round_to_codes_cpu);
  return checked(std::move(def));
}

std::shared_ptr<device::Kernel> prepare_round_to_codes_cpu(const ir::KernelSpec& spec) {
  return make_kernel([rows = Rows(spec.inputs[0], spec.attributes)](const device::Launch& launch) {
    const std::int64_t group = rows.format.group_of(rows.k);
    launch.pool->ranges(rows.n, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin * rows.k; at < end * rows.k; at += group) {
        const float* x = launch.in<float>(0) + at;
        float* y = launch.out<float>(0) + at;
        const float scale = group_scale(x, group, rows.format.bits);
        for (std::int64_t i = 0; i < group; ++i)
          y[i] = static_cast<float>(nearest_code(x[i], scale, rows.format.bits)) * scale;
      }
    });
  });
}

}  // namespace trireme::ops
