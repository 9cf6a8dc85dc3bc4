#include "trireme/ops/matmul/fp8_matmul.h"

#include <array>

#include "trireme/ops/define.h"
#include "trireme/ops/matmul/matmul.h"
#include "trireme/ops/quantize/fp8.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_matmul_cpu(const ir::KernelSpec& spec);
std::size_t matmul_cpu_workspace(const ir::KernelSpec& spec);

namespace {

ir::Attributes product_attributes(const ir::Attributes& given) {
  ir::Attributes all;
  for (const ir::AttributeSpec& a : matmul_def().attributes) all.set(a.name, a.fallback);
  all.set("trans_b", true);
  for (const char* name : {"a_split", "b_split"}) all.set(name, *given.find(name));
  return all;
}

ir::Types fp8_infer(std::span<const TensorType> in, const ir::Attributes& attributes) {
  expect_dtype(in[0], DType::u8, "a");
  expect_dtype(in[1], DType::u8, "b");
  for (const std::size_t i : {2, 3}) expect_type(in[i], {DType::f32, {}}, i == 2 ? "a_scale" : "b_scale");
  const std::string &a = attributes.text("a_format"), &b = attributes.text("b_format");
  fp8_format(a);
  fp8_format(b);
  if (a == "e5m2" && b == "e5m2") fail("no GPU multiplies e5m2 by e5m2");
  const MatmulProblem p = matmul_fp8_problem(in[0], in[1], attributes);
  const TensorType y{dtype_of(attributes.text("out")), p.a_free + p.b_free};
  expect_compute(y, "out");
  return {y};
}

ir::Factors fp8_factors(std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_fp8_problem(in[0], in[1], attributes);
  ir::Factors f;
  const auto group = [&](const Shape& shape, const char* name) {
    std::vector<int> indices;
    for (int i = 0; i < shape.rank(); ++i) {
      indices.push_back(static_cast<int>(f.factors.size()));
      f.factors.push_back({name + std::to_string(i), ir::Factor::Kind::free});
    }
    return indices;
  };
  const std::vector<int> m = group(p.a_free, "m"), n = group(p.b_free, "n"), k = group(p.contracted, "k");
  const auto join = [](std::vector<int> first, const std::vector<int>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  f.inputs = {join(m, k), join(n, k), {}, {}};
  f.outputs = {join(m, n)};
  return f;
}

ir::Cost fp8_cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_fp8_problem(in[0], in[1], attributes);
  ir::Cost c = one_pass(in, out, 0);
  c.flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return c;
}

// The same numbers as f32, multiplied as such. The scales are a part of a's.
struct Emulated {
  std::array<TensorType, 4> inputs;
  std::array<TensorType, 1> outputs;
  ir::Attributes attributes;
  int threads;
  bool direct;  // the product writes y itself
  bool accumulate;
  std::size_t a_bytes, b_bytes, y_bytes = 0;

  explicit Emulated(const ir::KernelSpec& spec)
      : inputs{TensorType{DType::f32, spec.inputs[0].shape}, TensorType{DType::f32, spec.inputs[1].shape},
               TensorType::none(), TensorType::none()},
        outputs{TensorType{DType::f32, spec.outputs[0].shape}},
        attributes(product_attributes(spec.attributes)),
        threads(spec.threads),
        direct(spec.outputs[0].dtype == DType::f32),
        accumulate(spec.accumulate),
        a_bytes(aligned(inputs[0].bytes())),
        b_bytes(aligned(inputs[1].bytes())) {
    if (!direct) y_bytes = aligned(outputs[0].bytes());
  }
  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  ir::KernelSpec product() const { return {inputs, outputs, attributes, threads, direct && accumulate}; }
  std::size_t workspace() const { return a_bytes + b_bytes + y_bytes + matmul_cpu_workspace(product()); }
};

void widen(const device::Launch& launch, std::size_t input, std::int64_t n, const Fp8Format& format, float by,
           float* to) {
  std::array<float, 256> values = format.values();
  for (float& v : values) v *= by;
  const auto* codes = launch.in<std::uint8_t>(input);
  launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = values[codes[i]];
  });
}

std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  const Emulated e(spec);
  const Fp8Format a_format = fp8_format(spec.attributes.text("a_format"));
  const Fp8Format b_format = fp8_format(spec.attributes.text("b_format"));
  return dispatch_compute(spec.outputs[0].dtype, [&]<class Y>(Y) {
    return make_kernel([e, a_format, b_format, product = prepare_matmul_cpu(e.product())](const device::Launch& l) {
      auto* const workspace = static_cast<std::byte*>(l.workspace);
      auto* const a = reinterpret_cast<float*>(workspace);
      auto* const b = reinterpret_cast<float*>(workspace + e.a_bytes);
      auto* const sums = e.direct ? l.out<float>(0) : reinterpret_cast<float*>(workspace + e.a_bytes + e.b_bytes);
      widen(l, 0, e.inputs[0].elements(), a_format, *l.in<float>(2) * *l.in<float>(3), a);
      widen(l, 1, e.inputs[1].elements(), b_format, 1, b);
      product->launch({std::array<const void*, 4>{a, b, nullptr, nullptr}, std::array<void*, 1>{sums},
                       workspace + e.a_bytes + e.b_bytes + e.y_bytes, l.pool, l.native_stream});
      if (e.direct) return;
      l.pool->ranges(e.outputs[0].elements(), simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        Y* const y = l.out<Y>(0) + begin;
        if (e.accumulate)
          simd::map(
              end - begin, y, [](simd::Vec x, simd::Vec v) { return x + v; }, y, sums + begin);
        else
          simd::map(
              end - begin, y, [](simd::Vec v) { return v; }, sums + begin);
      });
    });
  });
}

std::size_t workspace(const ir::KernelSpec& spec) { return Emulated(spec).workspace(); }

}  // namespace

MatmulProblem matmul_fp8_problem(const TensorType& a, const TensorType& b, const ir::Attributes& attributes) {
  return matmul_problem(a, b, product_attributes(attributes));
}

ir::OpDef matmul_fp8_def() {
  ir::OpDef def;
  def.name = "matmul_fp8";
  def.operands = {{"a"}, {"b"}, {.name = "a_scale", .keep_f32 = true}, {.name = "b_scale", .keep_f32 = true}};
  def.attributes = {{"a_split", std::int64_t{-1}},
                    {"b_split", std::int64_t{-1}},
                    {"a_format", "e4m3"},
                    {"b_format", "e4m3"},
                    {"fast", false},
                    {"out", "bf16"}};
  def.infer = fp8_infer;
  def.no_gradient = "it is made by the pass fp8, after gradients are taken";
  def.factors = fp8_factors;
  def.cost = fp8_cost;
  def.with_precision(ir::Precision::follow);
  def.traits.accumulates = true;
  on_cpu(def, prepare, workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
