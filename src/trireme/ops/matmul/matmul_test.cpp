#include "trireme/ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/accumulate_check.h"
#include "support/op_check.h"
#include "trireme/core/error.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

double activation(const std::string& name, double x) {
  if (name == "relu") return std::max(x, 0.0);
  if (name == "gelu") return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  if (name == "gelu_tanh") return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (name == "silu") return x / (1 + std::exp(-x));
  return x;
}

double derivative(const std::string& name, double x) {
  if (name == "none") return 1;
  if (name == "relu") return x > 0 ? 1 : 0;
  const double h = 1e-5;
  return (activation(name, x + h) - activation(name, x - h)) / (2 * h);
}

// The op's words in plain loops; attributes must be complete.
std::vector<Tensor> reference(const std::vector<Tensor>& in, const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_problem(in[0].type, in[1].type, attributes);
  Tensor y = Tensor::zeros({DType::f32, p.a_free + p.b_free});
  Tensor pre = y;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k)
        sum += in[0].data[static_cast<std::size_t>(p.trans_a ? k * p.m + i : i * p.k + k)] *
               in[1].data[static_cast<std::size_t>(p.trans_b ? j * p.k + k : k * p.n + j)];
      const auto at = static_cast<std::size_t>(i * p.n + j);
      if (in.size() > 2 && in[2].type.present) sum += in[2].data[static_cast<std::size_t>(j)];
      pre[at] = sum;
      y[at] = activation(attributes.text("activation"), sum);
      if (in.size() > 3 && in[3].type.present)
        y[at] = attributes.boolean("add") ? sum + in[3].data[at]
                                          : sum * derivative(attributes.text("activation_grad"), in[3].data[at]);
    }
  if (attributes.boolean("save_pre")) return {y, pre};
  return {y};
}

ir::Attributes complete(ir::Attributes attributes) {
  for (const ir::AttributeSpec& spec : matmul_def().attributes)
    if (attributes.find(spec.name) == nullptr) attributes.set(spec.name, spec.fallback);
  return attributes;
}

// How far results of this dtype may be from the reference: what rounding them alone does, and a little.
double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 4e-3 : 1e-3; }

OpCase make_case(std::vector<TensorType> inputs, const ir::Attributes& attributes = {}) {
  OpCase c;
  c.op = "matmul";
  c.attributes = attributes;
  const ir::Attributes full = complete(attributes);
  c.reference = [full](const std::vector<Tensor>& in) { return reference(in, full); };
  c.tolerance = tolerance_of(full.text("out") == "f32" ? DType::f32 : inputs[0].dtype);
  c.inputs = std::move(inputs);
  return c;
}

Shape matrix(bool turned, std::int64_t rows, std::int64_t columns) {
  return turned ? Shape{columns, rows} : Shape{rows, columns};
}

constexpr auto f32 = DType::f32;
constexpr auto bf16 = DType::bf16;
constexpr auto f16 = DType::f16;

TEST(Matmul, OddSizesAndTransposes) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size s :
       {Size{1, 1, 1}, Size{3, 7, 1}, Size{17, 1, 33}, Size{1, 65, 7}, Size{33, 17, 65}, Size{65, 33, 17}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        SCOPED_TRACE(fmt::format("{}x{}x{} {} {}", s.m, s.n, s.k, trans_a, trans_b));
        OpCase c = make_case({{f32, matrix(trans_a, s.m, s.k)}, {f32, matrix(trans_b, s.k, s.n)}},
                             {{"trans_a", trans_a}, {"trans_b", trans_b}});
        c.differentiate = {0, 1};
        check_op(c);
      }
}

// Several tiles both ways, and sums long enough to run in slices.
TEST(Matmul, ManyTiles) {
  for (const DType dtype : {f32, bf16, f16})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(dtype), trans_a, trans_b));
        check_op(make_case({{dtype, matrix(trans_a, 269, 1300)}, {dtype, matrix(trans_b, 1300, 203)}},
                           {{"trans_a", trans_a}, {"trans_b", trans_b}}));
      }
  check_op(make_case({{f32, {4, 90}}, {f32, {1030, 90}}}, {{"trans_b", true}}));
  check_op(make_case({{f32, {1100, 9}}, {f32, {9, 5}}}));
}

TEST(Matmul, GroupsOfDimensions) {
  // A linear layer, its input's gradient and its weight's gradient, as the gradient function builds them.
  OpCase linear = make_case({{f32, {2, 3, 7}}, {f32, {5, 7}}}, {{"trans_b", true}});
  linear.differentiate = {0, 1};
  check_op(linear);
  check_op(make_case({{f32, {2, 3, 5}}, {f32, {5, 7}}}));
  check_op(make_case({{f32, {2, 3, 5}}, {f32, {2, 3, 7}}},
                     {{"trans_a", true}, {"a_split", std::int64_t{2}}, {"b_split", std::int64_t{2}}}));
  // Heads: [b,s,d] by [3,h,d'|d] and back over (h, d').
  OpCase heads = make_case({{f32, {2, 3, 8}}, {f32, {3, 2, 4, 8}}}, {{"trans_b", true}});
  heads.differentiate = {0, 1};
  check_op(heads);
  OpCase merge = make_case({{f32, {2, 3, 2, 4}}, {f32, {5, 2, 4}}},
                           {{"trans_b", true}, {"a_split", std::int64_t{2}}, {"b_split", std::int64_t{1}}});
  merge.differentiate = {0, 1};
  check_op(merge);
  // Vectors: a group may be empty.
  OpCase dot = make_case({{f32, {7}}, {f32, {7}}}, {{"b_split", std::int64_t{1}}});
  dot.differentiate = {0, 1};
  check_op(dot);
}

TEST(Matmul, BiasAndActivations) {
  for (const DType dtype : {f32, bf16, f16})
    for (const DType bias : {dtype, f32})
      for (const char* name : {"none", "relu", "gelu", "gelu_tanh", "silu"})
        for (const bool save : {false, true})
          for (const char* out : {"same", "f32"}) {
            SCOPED_TRACE(fmt::format("{} {} {} {} {}", name_of(dtype), name_of(bias), name, save, out));
            OpCase c = make_case({{dtype, {5, 17, 33}}, {dtype, {65, 33}}, {bias, {65}}},
                                 {{"trans_b", true}, {"activation", name}, {"save_pre", save}, {"out", out}});
            check_op(c);
          }
  OpCase c = make_case({{f32, {2, 3, 9}}, {f32, {7, 9}}, {f32, {7}}}, {{"trans_b", true}});
  c.differentiate = {0, 1, 2};
  check_op(c);
}

TEST(Matmul, ActivationGradient) {
  for (const DType dtype : {f32, bf16, f16})
    for (const char* name : {"relu", "gelu", "gelu_tanh", "silu"})
      for (const char* out : {"same", "f32"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(dtype), name, out));
        check_op(make_case({{dtype, {3, 7, 33}}, {dtype, {33, 65}}, TensorType::none(), {dtype, {3, 7, 65}}},
                           {{"activation_grad", name}, {"out", out}}));
      }
}

TEST(Matmul, AddsToAnother) {
  for (const DType dtype : {f32, bf16, f16})
    for (const char* out : {"same", "f32"})
      for (const bool trans_b : {false, true})
        for (const std::int64_t rows : {1, 7, 300}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", name_of(dtype), out, trans_b, rows));
          const DType y = std::string(out) == "f32" ? f32 : dtype;
          OpCase c =
              make_case({{dtype, {rows, 136}}, {dtype, matrix(trans_b, 136, 72)}, TensorType::none(), {y, {rows, 72}}},
                        {{"trans_b", trans_b}, {"add", true}, {"out", out}});
          check_op(c);
          testing::check_accumulates(c);
        }
  check_op(make_case({{bf16, {3, 7, 33}}, {bf16, {33, 65}}, TensorType::none(), {bf16, {3, 7, 65}}}, {{"add", true}}));
}

TEST(Matmul, FewRows) {
  for (const DType dtype : {f32, bf16, f16})
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(dtype), rows));
      check_op(make_case({{dtype, {rows, 77}}, {dtype, {131, 77}}, {dtype, {131}}},
                         {{"trans_b", true}, {"activation", "silu"}, {"save_pre", true}}));
    }
}

TEST(Matmul, Accumulates) {
  for (const DType dtype : {f32, bf16, f16})
    for (const char* out : {"same", "f32"})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true})
          for (const std::int64_t rows : {3, 1100}) {
            SCOPED_TRACE(fmt::format("{} {} {} {} {}", name_of(dtype), out, trans_a, trans_b, rows));
            testing::check_accumulates(
                make_case({{dtype, matrix(trans_a, rows, 600)}, {dtype, matrix(trans_b, 600, 33)}},
                          {{"trans_a", trans_a}, {"trans_b", trans_b}, {"out", out}}));
          }
}

TEST(Matmul, LowPrecisionSumsInF32) {
  OpCase c = make_case({{bf16, {33, 700}}, {bf16, {17, 700}}}, {{"trans_b", true}, {"out", "f32"}});
  check_op(c);
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const auto message = [](std::vector<TensorType> inputs, const ir::Attributes& attributes) -> std::string {
    inputs.resize(4, TensorType::none());
    try {
      matmul_def().infer(inputs, complete(attributes));
    } catch (const Error& e) {
      return e.message();
    }
    return "accepted";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {4, 5}}}, {}), "[3]");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {bf16, {3, 5}}}, {}), "'b' must be f32");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}, {f32, {2}}}, {}), "'bias' must have shape [5]");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}}, {{"a_split", std::int64_t{3}}}), "'a_split'");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}}, {{"activation", "swish"}}), "no activation 'swish'");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}}, {{"activation_grad", "relu"}}), "'aux'");
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}}, {{"add", true}}), "'aux'");
  const TensorType sum{f32, {2, 5}};
  EXPECT_PRED2(has, message({{f32, {2, 3}}, {f32, {3, 5}}, {f32, {5}}, sum}, {{"add", true}}), "goes with neither");
}

TEST(Matmul, FactorsFollowTheGroups) {
  const ir::OpDef def = matmul_def();
  const auto text = [&](std::vector<TensorType> inputs, const ir::Attributes& attributes) {
    inputs.resize(4, TensorType::none());
    const ir::Attributes full = complete(attributes);
    return def.factors(inputs, def.infer(inputs, full), full).str();
  };
  EXPECT_EQ(text({{f32, {2, 3, 7}}, {f32, {5, 7}}}, {{"trans_b", true}}), "m0 m1 k0, n0 k0, -, - -> m0 m1 n0");
  EXPECT_EQ(text({{f32, {2, 3, 7}}, {f32, {5, 7}}, {f32, {5}}}, {{"trans_b", true}}),
            "m0= m1= k0*, n0 k0*, n0, - -> m0= m1= n0");
  EXPECT_EQ(text({{f32, {2, 3, 5}}, {f32, {2, 3, 7}}},
                 {{"trans_a", true}, {"a_split", std::int64_t{2}}, {"b_split", std::int64_t{2}}}),
            "k0 k1 m0, k0 k1 n0, -, - -> m0 n0");
  EXPECT_EQ(text({{f32, {2, 7}}, {f32, {7, 5}}, TensorType::none(), {f32, {2, 5}}}, {{"add", true}}),
            "m0 k0!, k0! n0, -, m0 n0 -> m0 n0");
}

}  // namespace
}  // namespace trireme::ops
