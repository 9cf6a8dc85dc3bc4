#include "trireme/ops/conv/pool2d.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

double tolerance_of(DType dtype) { return dtype == f32 ? 2e-6 : dtype == bf16 ? 4e-3 : 1e-3; }

struct Setting {
  Shape x;
  std::array<std::int64_t, 2> kernel, stride, padding;

  ir::Attributes attributes() const {
    const auto list = [](const std::array<std::int64_t, 2>& pair) {
      return std::vector<std::int64_t>(pair.begin(), pair.end());
    };
    return {{"kernel", list(kernel)}, {"stride", list(stride)}, {"padding", list(padding)}};
  }
  Window window() const { return {kernel, stride, padding, {1, 1}, padding}; }
  Shape y() const { return {x[0], window().positions(0, x[1]), window().positions(1, x[2]), x[3]}; }
  std::string str() const { return fmt::format("{} kernel {},{}", x.str(), kernel[0], kernel[1]); }
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {{1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}},   {{2, 6, 8, 3}, {2, 2}, {2, 2}, {0, 0}},
      {{3, 7, 9, 17}, {3, 3}, {2, 2}, {1, 1}},  {{2, 9, 5, 33}, {3, 2}, {1, 3}, {1, 0}},
      {{1, 11, 7, 65}, {2, 3}, {3, 1}, {1, 1}}, {{2, 5, 5, 16}, {5, 5}, {5, 5}, {0, 0}},
  };
  return all;
}

// Calls f(y index, x index, h·W + w) for every pixel of every window.
template <class F>
void for_pixels(const Setting& s, F&& f) {
  const Shape y = s.y();
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t i = 0; i < y[1]; ++i)
      for (std::int64_t j = 0; j < y[2]; ++j)
        for (std::int64_t c = 0; c < y[3]; ++c)
          for (std::int64_t r = 0; r < s.kernel[0]; ++r)
            for (std::int64_t t = 0; t < s.kernel[1]; ++t) {
              const std::int64_t h = i * s.stride[0] - s.padding[0] + r;
              const std::int64_t w = j * s.stride[1] - s.padding[1] + t;
              if (h < 0 || h >= s.x[1] || w < 0 || w >= s.x[2]) continue;
              f(static_cast<std::size_t>(((n * y[1] + i) * y[2] + j) * y[3] + c),
                static_cast<std::size_t>(((n * s.x[1] + h) * s.x[2] + w) * s.x[3] + c), h * s.x[2] + w);
            }
}

std::vector<Tensor> max_reference(const Setting& s, const Tensor& x) {
  Tensor y = Tensor::zeros({f32, s.y()});
  Tensor index = Tensor::zeros({DType::i32, s.y()});
  y.data.assign(y.data.size(), -std::numeric_limits<double>::infinity());
  for_pixels(s, [&](std::size_t yi, std::size_t xi, std::int64_t where) {
    if (x[xi] <= y[yi]) return;
    y[yi] = x[xi];
    index[yi] = static_cast<double>(where);
  });
  return {y, index};
}

// Far apart, so that a finite difference never changes which value is the largest.
double distinct(std::size_t, std::size_t element) { return static_cast<double>(element * 7919 % 257) / 128.0 - 1.0; }

TEST(MaxPool2d, ForwardAndGradient) {
  for (const DType dtype : {f32, bf16, f16})
    for (const Setting& s : settings()) {
      SCOPED_TRACE(fmt::format("{} {}", s.str(), name_of(dtype)));
      OpCase c;
      c.op = "max_pool2d";
      c.attributes = s.attributes();
      c.inputs = {{dtype, s.x}};
      c.fill = distinct;
      c.reference = [&](const std::vector<Tensor>& in) { return max_reference(s, in[0]); };
      c.tolerance = tolerance_of(dtype);
      if (dtype == f32) c.differentiate = {0};
      check_op(c);
    }
}

TEST(MaxPool2d, GradientGoesWhereTheIndexSays) {
  for (const DType dtype : {f32, bf16, f16})
    for (const Setting& s : settings()) {
      SCOPED_TRACE(fmt::format("{} {}", s.str(), name_of(dtype)));
      OpCase c;
      c.op = "max_pool2d_grad";
      c.attributes = {{"height", s.x[1]}, {"width", s.x[2]}};
      c.inputs = {{dtype, s.y()}, {DType::i32, s.y()}};
      c.fill = [&](std::size_t input, std::size_t element) {
        return input == 0 ? distinct(0, element)
                          : static_cast<double>(element * 31 % static_cast<std::size_t>(s.x[1] * s.x[2]));
      };
      c.reference = [&](const std::vector<Tensor>& in) {
        Tensor dx = Tensor::zeros({f32, s.x});
        const Shape y = s.y();
        for (std::size_t i = 0; i < in[0].data.size(); ++i) {
          const auto e = static_cast<std::int64_t>(i);
          const std::int64_t n = e / y.elements(1, 4);
          const std::int64_t channel = e % y[3];
          dx[static_cast<std::size_t>((n * s.x[1] * s.x[2] + static_cast<std::int64_t>(in[1][i])) * s.x[3] +
                                      channel)] += in[0][i];
        }
        return std::vector<Tensor>{dx};
      };
      c.tolerance = tolerance_of(dtype);
      check_op(c);
    }
}

TEST(AvgPool2d, ForwardAndGradient) {
  for (const DType dtype : {f32, bf16, f16})
    for (const Setting& s : settings())
      for (const bool include : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} {}", s.str(), name_of(dtype), include));
        Tensor counts = Tensor::zeros({f32, s.y()});
        for_pixels(s, [&](std::size_t yi, std::size_t, std::int64_t) { counts[yi] += 1; });
        if (include) counts.data.assign(counts.data.size(), static_cast<double>(s.kernel[0] * s.kernel[1]));
        OpCase c;
        c.op = "avg_pool2d";
        c.attributes = s.attributes();
        c.attributes.set("count_include_pad", include);
        c.inputs = {{dtype, s.x}};
        c.reference = [&](const std::vector<Tensor>& in) {
          Tensor y = Tensor::zeros({f32, s.y()});
          for_pixels(s, [&](std::size_t yi, std::size_t xi, std::int64_t) { y[yi] += in[0][xi] / counts[yi]; });
          return std::vector<Tensor>{y};
        };
        c.tolerance = tolerance_of(dtype);
        if (dtype == f32) c.differentiate = {0};
        check_op(c);

        OpCase g = c;
        g.op = "avg_pool2d_grad";
        g.attributes.set("height", s.x[1]);
        g.attributes.set("width", s.x[2]);
        g.inputs = {{dtype, s.y()}};
        g.differentiate = {};
        g.reference = [&](const std::vector<Tensor>& in) {
          Tensor dx = Tensor::zeros({f32, s.x});
          for_pixels(s, [&](std::size_t yi, std::size_t xi, std::int64_t) { dx[xi] += in[0][yi] / counts[yi]; });
          return std::vector<Tensor>{dx};
        };
        check_op(g);
      }
}

TEST(GlobalAvgPool, IsTheMeanOfEachChannel) {
  OpCase c;
  c.op = "global_avg_pool";
  c.inputs = {{f32, {3, 5, 7, 17}}};
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({f32, {3, 17}});
    for (std::size_t i = 0; i < in[0].data.size(); ++i) y[i / (5 * 7 * 17) * 17 + i % 17] += in[0][i] / 35;
    return std::vector<Tensor>{y};
  };
  c.check_factors = false;  // it is reduce's rule that counts
  check_op(c);
}

TEST(Pool2d, RefusesWhatDoesNotFit) {
  const auto message = [](const TensorType& x, const Setting& s) -> std::string {
    try {
      max_pool2d_def().infer(std::span(&x, 1), s.attributes());
    } catch (const Error& e) {
      return e.message();
    }
    return "accepted";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, message({f32, {1, 2, 2, 1}}, {{}, {3, 3}, {1, 1}, {0, 0}}), "does not fit");
  EXPECT_PRED2(has, message({f32, {1, 4, 4, 1}}, {{}, {3, 3}, {1, 1}, {2, 1}}), "at most half of 'kernel'");
  EXPECT_PRED2(has, message({f32, {4, 4, 1}}, {{}, {3, 3}, {1, 1}, {0, 0}}), "'x' must be [n,h,w,c]");
}

}  // namespace
}  // namespace trireme::ops
