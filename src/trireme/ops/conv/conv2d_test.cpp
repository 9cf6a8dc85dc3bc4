#include "trireme/ops/conv/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "support/accumulate_check.h"
#include "support/op_check.h"
#include "trireme/core/error.h"
#include "trireme/ops/conv/problem.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

constexpr auto f32 = DType::f32;
constexpr auto bf16 = DType::bf16;
constexpr auto f16 = DType::f16;

struct Arithmetic {
  DType dtype;
  bool tf32;
  double tolerance;
  std::string str() const { return tf32 ? "tf32" : name_of(dtype); }
};
constexpr Arithmetic kArithmetics[] = {{f32, false, 2e-6}, {f32, true, 2e-3}, {bf16, false, 4e-3}, {f16, false, 1e-3}};

ir::Attributes complete(const ir::OpDef& def, ir::Attributes attributes) {
  for (const ir::AttributeSpec& spec : def.attributes)
    if (attributes.find(spec.name) == nullptr) attributes.set(spec.name, spec.fallback);
  return attributes;
}

// Calls f(x, w, y) with the indices of every product x·w that goes into y.
template <class F>
void for_products(const ConvProblem& p, F&& f) {
  const std::int64_t c = p.c / p.groups;
  const std::int64_t k = p.k / p.groups;
  const Window& v = p.window;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t i = 0; i < p.p; ++i)
      for (std::int64_t j = 0; j < p.q; ++j)
        for (std::int64_t o = 0; o < p.k; ++o)
          for (std::int64_t r = 0; r < v.kernel[0]; ++r)
            for (std::int64_t s = 0; s < v.kernel[1]; ++s) {
              const std::int64_t h = i * v.stride[0] - v.padding[0] + r * v.dilation[0];
              const std::int64_t w = j * v.stride[1] - v.padding[1] + s * v.dilation[1];
              if (h < 0 || h >= p.h || w < 0 || w >= p.w) continue;
              for (std::int64_t m = 0; m < c; ++m)
                f(static_cast<std::size_t>(((n * p.h + h) * p.w + w) * p.c + o / k * c + m),
                  static_cast<std::size_t>(((o * v.kernel[0] + r) * v.kernel[1] + s) * c + m),
                  static_cast<std::size_t>(((n * p.p + i) * p.q + j) * p.k + o));
            }
}

struct Setting {
  std::int64_t n = 1, h = 1, w = 1, c = 1, k = 1, r = 1, s = 1;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  std::optional<std::array<std::int64_t, 2>> after = {};  // padding behind the image, where it is not `padding`

  ir::Attributes attributes() const {
    const auto list = [](const std::array<std::int64_t, 2>& pair) {
      return std::vector<std::int64_t>(pair.begin(), pair.end());
    };
    std::vector<std::int64_t> all = list(padding);
    if (after) all.insert(all.end(), after->begin(), after->end());
    return {{"stride", list(stride)}, {"padding", all}, {"dilation", list(dilation)}, {"groups", groups}};
  }
  Shape x() const { return {n, h, w, c}; }
  Shape weights() const { return {k, r, s, c / groups}; }
  ConvProblem problem() const { return conv_problem({f32, x()}, {f32, weights()}, attributes()); }
  std::string str() const {
    const std::array<std::int64_t, 2>& behind = after ? *after : padding;
    return fmt::format("n{} {}x{}x{} k{} {}x{} stride {},{} padding {},{},{},{} dilation {},{} groups {}", n, h, w, c,
                       k, r, s, stride[0], stride[1], padding[0], padding[1], behind[0], behind[1], dilation[0],
                       dilation[1], groups);
  }
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {},
      {.n = 2, .h = 5, .w = 7, .c = 3, .k = 5, .r = 3, .s = 3, .padding = {1, 1}},
      {.n = 3, .h = 9, .w = 8, .c = 17, .k = 33, .r = 3, .s = 1, .stride = {2, 1}, .padding = {1, 0}},
      {.n = 2,
       .h = 11,
       .w = 9,
       .c = 16,
       .k = 16,
       .r = 3,
       .s = 3,
       .stride = {2, 2},
       .padding = {2, 1},
       .dilation = {2, 1}},
      {.n = 2, .h = 9, .w = 10, .c = 8, .k = 32, .r = 3, .s = 2, .padding = {0, 1}, .dilation = {3, 2}},
      {.n = 2, .h = 13, .w = 13, .c = 3, .k = 16, .r = 7, .s = 7, .stride = {2, 2}, .padding = {3, 3}},
      {.n = 2, .h = 11, .w = 14, .c = 3, .k = 8, .r = 7, .s = 7, .stride = {2, 2}, .padding = {3, 3}},
      {.n = 2, .h = 8, .w = 6, .c = 4, .k = 16, .r = 3, .s = 2, .stride = {2, 2}, .padding = {1, 0}},
      {.n = 3, .h = 6, .w = 5, .c = 32, .k = 7, .stride = {2, 2}},
      {.n = 2, .h = 6, .w = 7, .c = 6, .k = 9, .r = 3, .s = 3, .padding = {1, 1}, .groups = 3},
      {.n = 2, .h = 7, .w = 6, .c = 32, .k = 64, .r = 3, .s = 3, .stride = {2, 1}, .padding = {1, 1}, .groups = 2},
      {.n = 2, .h = 7, .w = 7, .c = 17, .k = 17, .r = 3, .s = 3, .padding = {1, 1}, .groups = 17},
      {.n = 2, .h = 9, .w = 9, .c = 16, .k = 16, .r = 5, .s = 5, .stride = {2, 2}, .padding = {2, 2}, .groups = 16},
      {.n = 1, .h = 6, .w = 6, .c = 4, .k = 8, .r = 3, .s = 3, .padding = {1, 1}, .groups = 4},
      {.n = 3, .h = 3, .w = 1, .c = 16, .k = 32, .r = 3, .s = 3, .stride = {2, 2}, .padding = {1, 1}},  // a slice's
                                                                                                        // edge
      {.n = 2, .h = 5, .w = 2, .c = 16, .k = 16, .r = 3, .s = 3, .stride = {3, 3}, .padding = {1, 1}},
      {.n = 67, .h = 4, .w = 3, .c = 5, .k = 6, .r = 3, .s = 3, .padding = {1, 1}},  // blocks of unequal size
      // Slices of images have different paddings at their edges. (cuDNN had the weight gradient of the first wrong.)
      {.n = 24, .h = 10, .w = 6, .c = 16, .k = 64, .r = 3, .s = 3, .padding = {1, 0}, .after = {{1, 1}}},
      {.n = 8, .h = 5, .w = 2, .c = 64, .k = 64, .r = 3, .s = 3, .padding = {1, 1}, .after = {{1, 2}}},
      {.n = 8, .h = 5, .w = 3, .c = 64, .k = 64, .r = 3, .s = 3, .padding = {1, 2}, .after = {{1, 1}}},
      {.n = 3, .h = 21, .w = 11, .c = 3, .k = 16, .r = 3, .s = 3, .padding = {1, 1}, .after = {{1, 0}}},
      {.n = 3, .h = 9, .w = 6, .c = 3, .k = 16, .r = 7, .s = 7, .stride = {2, 2}, .padding = {3, 1}, .after = {{2, 3}}},
      {.n = 2, .h = 6, .w = 5, .c = 8, .k = 16, .r = 1, .s = 1, .stride = {2, 2}, .after = {{0, 2}}},
  };
  return all;
}

void check_forward(const Setting& s, const Arithmetic& a, bool with_bias) {
  SCOPED_TRACE(fmt::format("{} {} bias {}", s.str(), a.str(), with_bias));
  OpCase c;
  c.op = "conv2d";
  c.attributes = s.attributes();
  c.attributes.set("tf32", a.tf32);
  c.inputs = {{a.dtype, s.x()}, {a.dtype, s.weights()}, with_bias ? TensorType{a.dtype, {s.k}} : TensorType::none()};
  c.reference = [&](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({f32, s.problem().y()});
    for_products(s.problem(), [&](auto xi, auto wi, auto yi) { y[yi] += in[0][xi] * in[1][wi]; });
    if (with_bias)
      for (std::size_t i = 0; i < y.data.size(); ++i) y[i] += in[2][i % static_cast<std::size_t>(s.k)];
    return std::vector<Tensor>{y};
  };
  c.tolerance = a.tolerance;
  if (a.dtype == f32 && !a.tf32 && s.n < 4) {
    c.differentiate = {0, 1};
    if (with_bias) c.differentiate.push_back(2);
  }
  check_op(c);
}

void check_input_gradient(const Setting& s, const Arithmetic& a) {
  SCOPED_TRACE(fmt::format("{} {}", s.str(), a.str()));
  OpCase c;
  c.op = "conv2d_grad_input";
  c.attributes = s.attributes();
  c.attributes.set("tf32", a.tf32);
  c.attributes.set("height", s.h);
  c.attributes.set("width", s.w);
  c.inputs = {{a.dtype, s.problem().y()}, {a.dtype, s.weights()}};
  c.reference = [&](const std::vector<Tensor>& in) {
    Tensor dx = Tensor::zeros({f32, s.x()});
    for_products(s.problem(), [&](auto xi, auto wi, auto yi) { dx[xi] += in[0][yi] * in[1][wi]; });
    return std::vector<Tensor>{dx};
  };
  c.tolerance = a.tolerance;
  check_op(c);
}

void check_weight_gradient(const Setting& s, const Arithmetic& a, const std::string& out) {
  SCOPED_TRACE(fmt::format("{} {} {}", s.str(), a.str(), out));
  OpCase c;
  c.op = "conv2d_grad_weight";
  c.attributes = s.attributes();
  c.attributes.set("tf32", a.tf32);
  c.attributes.set("kernel", std::vector<std::int64_t>{s.r, s.s});
  c.attributes.set("out", out);
  c.inputs = {{a.dtype, s.x()}, {a.dtype, s.problem().y()}};
  c.reference = [&](const std::vector<Tensor>& in) {
    Tensor dw = Tensor::zeros({f32, s.weights()});
    for_products(s.problem(), [&](auto xi, auto wi, auto yi) { dw[wi] += in[0][xi] * in[1][yi]; });
    return std::vector<Tensor>{dw};
  };
  // A sum's rounding errors grow with the root of the number of its terms. (Of 1200, a kernel of cuDNN's had 2.3e-6.)
  const double terms = static_cast<double>(s.problem().y().elements() / s.k);
  const double exact = 2e-6 * std::sqrt(std::max(1.0, terms / 512));
  c.tolerance = (out == "f32" || a.dtype == f32) && !a.tf32 ? exact : a.tolerance;
  check_op(c);
  testing::check_accumulates(c);
}

TEST(Conv2d, Forward) {
  for (const Arithmetic& a : kArithmetics)
    for (const Setting& s : settings())
      for (const bool with_bias : {false, true}) check_forward(s, a, with_bias);
}

TEST(Conv2d, InputGradient) {
  for (const Arithmetic& a : kArithmetics)
    for (const Setting& s : settings()) check_input_gradient(s, a);
}

TEST(Conv2d, WeightGradient) {
  for (const Arithmetic& a : kArithmetics)
    for (const Setting& s : settings())
      for (const char* out : {"same", "f32"}) check_weight_gradient(s, a, out);
}

// Of many kinds, since which of the library's kernels is chosen depends on all of it.
TEST(Conv2d, UnevenPaddingsAtRandom) {
  std::mt19937 random(7);
  const auto any = [&](std::initializer_list<std::int64_t> of) { return of.begin()[random() % of.size()]; };
  for (int draw = 0; draw < 60; ++draw) {
    Setting s{
        .n = any({1, 3, 8}), .h = any({4, 7, 9}), .w = any({3, 5, 8}), .c = any({3, 8, 16, 32}), .k = any({8, 16, 64})};
    s.r = any({1, 3, 3, 5}), s.s = any({1, 3, 3, 5});
    s.stride = {any({1, 1, 2}), any({1, 1, 2})};
    s.dilation = {any({1, 1, 2}), any({1, 1, 2})};
    s.padding = {any({0, 1, 2}), any({0, 1, 2})};
    s.after = {{any({0, 1, 2, 3}), any({0, 1, 2, 3})}};
    const auto fits = [&](std::int64_t extent, std::int64_t kernel, std::size_t i) {
      return extent + s.padding[i] + (*s.after)[i] > (kernel - 1) * s.dilation[i];
    };
    if (!fits(s.h, s.r, 0) || !fits(s.w, s.s, 1)) continue;
    const Arithmetic& a = kArithmetics[random() % std::size(kArithmetics)];
    check_forward(s, a, draw % 2 == 0);
    check_input_gradient(s, a);
    check_weight_gradient(s, a, draw % 2 == 0 ? "same" : "f32");
  }
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const auto message = [](std::vector<TensorType> inputs, const ir::Attributes& attributes) -> std::string {
    inputs.resize(3, TensorType::none());
    try {
      conv2d_def().infer(inputs, complete(conv2d_def(), attributes));
    } catch (const Error& e) {
      return e.message();
    }
    return "accepted";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, message({{f32, {2, 5, 5, 3}}, {f32, {4, 3, 3, 2}}}, {}), "'w' must have shape [4,3,3,3]");
  EXPECT_PRED2(has, message({{f32, {2, 5, 5, 3}}, {f32, {4, 3, 3, 3}}}, {{"groups", std::int64_t{2}}}),
               "'groups' must divide");
  EXPECT_PRED2(has, message({{f32, {2, 2, 5, 3}}, {f32, {4, 3, 3, 3}}}, {}), "does not fit");
  EXPECT_PRED2(has, message({{f32, {2, 5, 5}}, {f32, {4, 3, 3, 3}}}, {}), "'x' must be [n,h,w,c]");
  EXPECT_PRED2(has, message({{f32, {2, 5, 5, 3}}, {f32, {4, 3, 3, 3}}}, {{"stride", std::vector<std::int64_t>{0, 1}}}),
               "'stride' must be two integers of at least 1");
}

}  // namespace
}  // namespace trireme::ops
