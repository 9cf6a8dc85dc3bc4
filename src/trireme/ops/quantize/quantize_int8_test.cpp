#include "trireme/ops/quantize/quantize_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/op_check.h"
#include "trireme/device/kernel.h"
#include "trireme/ops/all.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::round_to;
using testing::Tensor;

const std::vector<Shape> kShapes = {Shape{1}, Shape{3, 7}, Shape{17, 33}, Shape{2, 5, 64}, Shape{3, 65}, Shape{4, 700}};

// In f32, as the kernel's arithmetic is.
std::vector<Tensor> quantized(const Tensor& x, std::int64_t block) {
  const auto width = static_cast<std::size_t>(x.type.shape.back());
  Tensor q = Tensor::zeros({DType::i8, x.type.shape});
  Tensor scale = Tensor::zeros(int8_scales(x.type, block));
  const std::size_t blocks = static_cast<std::size_t>(scale.type.shape.back());
  for (std::size_t row = 0; row < x.data.size() / width; ++row)
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t first = row * width + b * static_cast<std::size_t>(block);
      const std::size_t end = std::min((row + 1) * width, first + static_cast<std::size_t>(block));
      float most = 0;
      for (std::size_t i = first; i < end; ++i) most = std::max(most, std::abs(static_cast<float>(x[i])));
      if (most < 1e-30F) continue;
      scale[row * blocks + b] = static_cast<double>(most / 127.0F);
      for (std::size_t i = first; i < end; ++i) {
        q[i] = static_cast<double>(std::nearbyintf(static_cast<float>(x[i]) * (127.0F / most)));
        if (q[i] == 0 && x[i] != 0) q[i] = std::copysign(1, x[i]);
      }
    }
  return {q, scale};
}

double wave(std::size_t i) {
  return std::sin(1.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 23) - 11);
}

TEST(QuantizeInt8, RoundsToTheNearestOfEachBlock) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const std::int64_t block : {1, 5, 64, 256}) {
        OpCase c;
        c.op = "quantize_int8";
        c.inputs = {{dtype, shape}};
        c.attributes = {{"block", block}};
        // Every third row is zero.
        c.fill = [&](std::size_t, std::size_t i) {
          return i / static_cast<std::size_t>(shape.back()) % 3 == 2 ? 0.0 : wave(i);
        };
        c.tolerance = 0;
        c.reference = [block](const std::vector<Tensor>& in) { return quantized(in[0], block); };
        check_op(c);
      }
}

TEST(DequantizeInt8, MultipliesByTheScale) {
  for (const DType to : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const std::int64_t block : {1, 5, 64}) {
        OpCase c;
        c.op = "dequantize_int8";
        const TensorType q{DType::i8, shape};
        c.inputs = {q, int8_scales(q, block)};
        c.attributes = {{"block", block}, {"to", std::string(name_of(to))}};
        c.fill = [](std::size_t input, std::size_t i) {
          return input == 0 ? static_cast<double>(i * 37 % 255) - 127 : 0.01 * static_cast<double>(i % 11);
        };
        c.tolerance = 0;
        c.reference = [&](const std::vector<Tensor>& in) {
          Tensor x = Tensor::zeros({to, shape});
          const auto width = static_cast<std::size_t>(shape.back());
          const auto blocks = static_cast<std::size_t>(in[1].type.shape.back());
          for (std::size_t i = 0; i < x.data.size(); ++i) {
            const std::size_t scale = i / width * blocks + i % width / static_cast<std::size_t>(block);
            const float product = static_cast<float>(in[0][i]) * static_cast<float>(in[1][scale]);
            x[i] = round_to(static_cast<double>(product), to);
          }
          return std::vector<Tensor>{x};
        };
        check_op(c);
      }
}

struct Pair {
  std::vector<float> x;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  std::vector<float> back;
};

// There and back, launched by hand.
Pair round_trip(const std::vector<float>& x) {
  const ir::Registry registry = builtin();
  const auto n = static_cast<std::int64_t>(x.size());
  const TensorType type{DType::f32, {n}}, bytes{DType::i8, {n}}, scales = int8_scales(type, kInt8Block);
  Pair p{x, std::vector<std::int8_t>(x.size()), std::vector<float>(static_cast<std::size_t>(scales.elements())),
         std::vector<float>(x.size())};
  ThreadPool pool(1);
  const auto launch = [&](const char* op, const ir::Types& inputs, const ir::Types& outputs, ir::Attributes attributes,
                          std::vector<const void*> in, std::vector<void*> out) {
    attributes.set("block", kInt8Block);
    registry.at(op)
        .kernels.at(device::Kind::cpu)
        .prepare({inputs, outputs, attributes})
        ->launch({in, out, nullptr, &pool});
  };
  launch("quantize_int8", {type}, {bytes, scales}, {}, {p.x.data()}, {p.q.data(), p.scale.data()});
  launch("dequantize_int8", {bytes, scales}, {type}, {{"to", std::string("f32")}}, {p.q.data(), p.scale.data()},
         {p.back.data()});
  return p;
}

TEST(QuantizeInt8, IsOffByAtMostHalfAScaleAndKeepsSigns) {
  std::vector<float> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(wave(i));
  const Pair p = round_trip(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scale = p.scale[i / kInt8Block];
    EXPECT_LE(std::abs(p.back[i] - x[i]), std::abs(x[i]) < 0.5F * scale ? scale : 0.50001F * scale) << i;
    EXPECT_EQ(std::signbit(p.back[i]), std::signbit(x[i])) << i;
    EXPECT_EQ(p.back[i] == 0, x[i] == 0) << i;
  }
}

TEST(QuantizeInt8, WhatIsNotFiniteStaysSo) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(130, 1.0F);
    x[70] = bad;
    const Pair p = round_trip(x);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(p.back[i]), i / 64 == 1) << i;
  }
}

TEST(QuantizeInt8, TinyBlocksBecomeZero) {
  const Pair p = round_trip(std::vector<float>(70, 1e-38F));
  for (const float v : p.back) EXPECT_EQ(v, 0.0F);
}

}  // namespace
}  // namespace trireme::ops
