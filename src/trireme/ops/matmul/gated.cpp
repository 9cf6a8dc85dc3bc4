#include "trireme/ops/matmul/gated.h"

#include <array>

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/matmul/matmul.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_matmul_cpu(const ir::KernelSpec& spec);
std::size_t matmul_cpu_workspace(const ir::KernelSpec& spec);

namespace {

constexpr std::array kShared = {"trans_a", "trans_b", "a_split", "b_split"};

// A product as matmul knows it.
struct Product {
  std::array<TensorType, 4> inputs;
  std::array<TensorType, 1> outputs;
  ir::Attributes attributes;
  int threads;
  device::Algorithms* algorithms;

  Product(const ir::KernelSpec& spec, const TensorType& y)
      : inputs{spec.inputs[0], spec.inputs[1], TensorType::none(), TensorType::none()},
        outputs{y},
        threads(spec.threads),
        algorithms(spec.algorithms) {
    for (const ir::AttributeSpec& a : matmul_def().attributes) attributes.set(a.name, a.fallback);
    for (const char* name : kShared) attributes.set(name, *spec.attributes.find(name));
  }
  ir::KernelSpec spec() const { return {inputs, outputs, attributes, threads, false, algorithms}; }
};

void launch(const std::shared_ptr<device::Kernel>& kernel, const device::Launch& from,
            std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace) {
  kernel->launch({inputs, outputs, workspace, from.pool, from.native_stream});
}

std::size_t staged(const ir::KernelSpec& spec) { return (spec.outputs[0].bytes() + 63) / 64 * 64; }

ir::Attributes none() { return {}; }

ir::Types gated_infer(std::span<const TensorType> in, const ir::Attributes& attributes) {
  expect_compute(in[0], "x");
  expect_dtype(in[1], in[0].dtype, "gate_weight");
  expect_type(in[2], in[1], "up_weight");
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  return ir::Types(3, {in[0].dtype, p.a_free + p.b_free});
}

ir::Types infer_grad(std::span<const TensorType> in, const ir::Attributes& attributes) {
  expect_compute(in[0], "dy");
  expect_dtype(in[1], in[0].dtype, "weight");
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  const TensorType y{in[0].dtype, p.a_free + p.b_free};
  expect_type(in[2], y, "gate");
  expect_type(in[3], y, "up");
  return {y, y};
}

// The summed dimensions stay whole: what is applied to a sum must not be applied to its parts.
ir::Factors gated_factors(std::span<const TensorType> in, std::span<const TensorType> out,
                          const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  ir::Factors f;
  const auto group = [&](const Shape& shape, const char* name, ir::Factor::Kind kind) {
    std::vector<int> indices;
    for (int i = 0; i < shape.rank(); ++i) {
      indices.push_back(static_cast<int>(f.factors.size()));
      f.factors.push_back({name + std::to_string(i), kind});
    }
    return indices;
  };
  const std::vector<int> m = group(p.a_free, "m", ir::Factor::Kind::free);
  const std::vector<int> n = group(p.b_free, "n", ir::Factor::Kind::free);
  const std::vector<int> k = group(p.contracted, "k", ir::Factor::Kind::whole);
  const auto join = [](std::vector<int> first, const std::vector<int>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const std::vector<int> weight = p.trans_b ? join(n, k) : join(k, n);
  const bool gradient = in.size() == 4;
  f.inputs = {p.trans_a ? join(k, m) : join(m, k), weight, gradient ? join(m, n) : weight};
  if (gradient) f.inputs.push_back(join(m, n));
  f.outputs.assign(out.size(), join(m, n));
  return f;
}

ir::Cost gated_cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  ir::Cost c = one_pass(in, out, 0);
  const double products = in.size() == 4 ? 1 : 2;
  c.flops = products * 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return c;
}

constexpr GatedParts kOnCpu{prepare_matmul_cpu, prepare_swiglu_cpu, prepare_swiglu_grad_cpu, matmul_cpu_workspace};

ir::OpDef common() {
  ir::OpDef def;
  def.attributes = {
      {"trans_a", false}, {"trans_b", false}, {"a_split", std::int64_t{-1}}, {"b_split", std::int64_t{-1}}};
  def.no_gradient = "it is made by fusion, after gradients are taken";
  def.factors = gated_factors;
  def.cost = gated_cost;
  def.with_precision(ir::Precision::low);
  return def;
}

}  // namespace

std::shared_ptr<device::Kernel> GatedParts::linear(const ir::KernelSpec& spec) const {
  const Product product(spec, spec.outputs[1]);
  const auto attributes = none();
  const std::array<TensorType, 2> pre = {spec.outputs[1], spec.outputs[2]};
  return make_kernel([multiply = matmul(product.spec()),
                      gate = swiglu({pre, spec.outputs.first(1), attributes, spec.threads})](const device::Launch& l) {
    for (const std::size_t i : {1, 2})
      launch(multiply, l, std::array<const void*, 4>{l.inputs[0], l.inputs[i], nullptr, nullptr},
             std::array<void*, 1>{l.outputs[i]}, l.workspace);
    launch(gate, l, std::array<const void*, 2>{l.outputs[1], l.outputs[2]}, l.outputs.first(1), nullptr);
  });
}

std::shared_ptr<device::Kernel> GatedParts::gradient(const ir::KernelSpec& spec) const {
  const Product product(spec, spec.outputs[0]);
  const auto attributes = none();
  const std::array<TensorType, 3> operands = {spec.inputs[2], spec.inputs[3], spec.outputs[0]};
  return make_kernel([multiply = matmul(product.spec()), stage = staged(spec),
                      gate = swiglu_grad({operands, spec.outputs, attributes, spec.threads})](const device::Launch& l) {
    auto* const dh = static_cast<std::byte*>(l.workspace);
    launch(multiply, l, std::array<const void*, 4>{l.inputs[0], l.inputs[1], nullptr, nullptr},
           std::array<void*, 1>{dh}, dh + stage);
    launch(gate, l, std::array<const void*, 3>{l.inputs[2], l.inputs[3], dh}, l.outputs, nullptr);
  });
}

std::size_t GatedParts::linear_workspace(const ir::KernelSpec& spec) const {
  return matmul_workspace(Product(spec, spec.outputs[1]).spec());
}
std::size_t GatedParts::gradient_workspace(const ir::KernelSpec& spec) const {
  return staged(spec) + matmul_workspace(Product(spec, spec.outputs[0]).spec());
}

ir::OpDef gated_linear_def() {
  ir::OpDef def = common();
  def.name = "gated_linear";
  def.operands = {{.name = "x"}, {.name = "gate_weight"}, {.name = "up_weight"}};
  def.infer = gated_infer;
  on_cpu(
      def, [](const ir::KernelSpec& spec) { return kOnCpu.linear(spec); },
      [](const ir::KernelSpec& spec) { return kOnCpu.linear_workspace(spec); });
  return checked(def);
}

ir::OpDef gated_linear_grad_def() {
  ir::OpDef def = common();
  def.name = "gated_linear_grad";
  def.operands = {{.name = "dy"}, {.name = "weight"}, {.name = "gate"}, {.name = "up"}};
  def.infer = infer_grad;
  def.traits.in_place = {{0, 2}, {1, 3}};
  on_cpu(
      def, [](const ir::KernelSpec& spec) { return kOnCpu.gradient(spec); },
      [](const ir::KernelSpec& spec) { return kOnCpu.gradient_workspace(spec); });
  return checked(def);
}

}  // namespace trireme::ops
