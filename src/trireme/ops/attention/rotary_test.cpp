#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

constexpr double kTheta = 500.0;  // short waves and long ones within a few positions

// As Hugging Face writes it, by wavelength.
double frequency(std::int64_t i, std::int64_t dim, const std::string& scaling) {
  const double plain = 1 / std::pow(kTheta, static_cast<double>(2 * i) / static_cast<double>(dim));
  const double factor = 8, low = 1, high = 4, original = 128;
  if (scaling == "linear") return plain / factor;
  if (scaling == "none") return plain;
  const double wavelength = 2 * std::numbers::pi / plain;
  if (wavelength < original / high) return plain;
  if (wavelength > original / low) return plain / factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

OpCase rotary_case(const Shape& shape, DType dtype, const std::string& scaling, bool inverse, std::int64_t offset) {
  OpCase c;
  c.op = "rotary";
  c.inputs = {{dtype, shape}, offset > 0 ? TensorType{DType::i32, {}} : TensorType::none()};
  c.attributes = {{"theta", kTheta}, {"scaling", scaling}, {"inverse", inverse}};
  if (scaling != "none") c.attributes.set("factor", 8.0);
  c.attributes.set("original", std::int64_t{128});
  c.fill = [offset](std::size_t input, std::size_t element) {
    return input == 1 ? static_cast<double>(offset) : std::sin(0.7 + 1.3 * static_cast<double>(element));
  };
  c.reference = [=](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    const std::int64_t dim = shape[3], half = dim / 2;
    for (std::int64_t row = 0; row < shape.elements(0, 3); ++row) {
      const std::int64_t position = row / shape[2] % shape[1] + offset;
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * frequency(i, dim, scaling) * (inverse ? -1 : 1);
        const auto first = static_cast<std::size_t>(row * dim + i), second = first + static_cast<std::size_t>(half);
        y[first] = in[0][first] * std::cos(angle) - in[0][second] * std::sin(angle);
        y[second] = in[0][second] * std::cos(angle) + in[0][first] * std::sin(angle);
      }
    }
    return std::vector<Tensor>{y};
  };
  c.differentiate = {0};
  if (dtype != DType::f32) c.tolerance = c.gradient_tolerance = 1e-2;
  return c;
}

TEST(Rotary, TurnsHalvesOfHeads) {
  for (const Shape& shape : {Shape{1, 1, 1, 2}, Shape{2, 7, 3, 6}, Shape{1, 65, 2, 34}, Shape{2, 131, 1, 64}})
    check_op(rotary_case(shape, DType::f32, "none", false, 0));
}

TEST(Rotary, ScaledFrequencies) {
  for (const char* scaling : {"linear", "llama3"}) check_op(rotary_case({1, 33, 2, 48}, DType::f32, scaling, false, 0));
}

TEST(Rotary, InverseAndOffset) {
  check_op(rotary_case({1, 17, 2, 16}, DType::f32, "none", true, 0));
  check_op(rotary_case({1, 3, 2, 16}, DType::f32, "llama3", false, 1000));
}

// More heads than a GPU's block turns at once, and blocks that are not whole.
TEST(Rotary, ManyHeads) {
  for (const Shape& shape : {Shape{1, 3, 67, 128}, Shape{2, 21, 8, 64}, Shape{1, 2, 130, 34}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      OpCase c = rotary_case(shape, dtype, "none", false, 0);
      c.differentiate = {};
      check_op(c);
    }
}

TEST(Rotary, LowPrecision) {
  check_op(rotary_case({1, 17, 3, 34}, DType::bf16, "none", false, 0));
  check_op(rotary_case({1, 17, 3, 34}, DType::f16, "llama3", true, 5));
}

}  // namespace
}  // namespace trireme
