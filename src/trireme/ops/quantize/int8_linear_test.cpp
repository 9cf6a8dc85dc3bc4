#include "trireme/ops/quantize/int8_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"
#include "trireme/ops/quantize/int8_dot.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

// Every code of a byte, in some order.
double byte_of(std::size_t i, int bits) {
  return bits == 8 ? static_cast<double>(i * 37 % 255) - 127 : static_cast<double>(i * 59 % 256);
}

double code_of(const Tensor& codes, const CodeFormat& format, std::int64_t row, std::int64_t k, std::int64_t column) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(format.row_bytes(k)));
  for (std::size_t b = 0; b < bytes.size(); ++b)
    bytes[b] = static_cast<std::byte>(static_cast<int>(codes[static_cast<std::size_t>(row) * bytes.size() + b]));
  return load_code(bytes.data(), column, format.bits);
}

OpCase integers(const CodeFormat& format, std::int64_t m, std::int64_t n, std::int64_t k, DType to, bool bias) {
  OpCase c;
  c.op = "int8_linear";
  c.inputs = {{DType::i8, {m, k}},
              format.codes(n, k),
              format.scales(n, k),
              {DType::f32, {}},
              bias ? TensorType{DType::f32, {n}} : TensorType::none()};
  c.attributes = code_attributes(format);
  c.attributes.set("x_split", std::int64_t{1});
  c.attributes.set("out", std::vector<std::int64_t>{n});
  c.attributes.set("to", std::string(name_of(to)));
  c.fill = [format](std::size_t input, std::size_t i) {
    switch (input) {
      case 0: return static_cast<double>(i * 101 % 255) - 127;
      case 1: return byte_of(i, format.bits);
      case 2: return 0.01 * (1 + static_cast<double>(i % 7)) * (i % 5 == 0 ? -1 : 1);
      case 3: return 0.017;
      default: return std::sin(1.3 * static_cast<double>(i));
    }
  };
  c.tolerance = to == DType::f32 ? 1e-6 : 1e-2;
  c.reference = [=](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({to, {m, n}});
    for (std::int64_t j = 0; j < n; ++j) {
      std::vector<double> weight;
      for (std::int64_t e = 0; e < k; ++e)
        weight.push_back(code_of(in[1], format, j, k, e) *
                         in[2][static_cast<std::size_t>(j * format.groups(k) + e / format.group_of(k))]);
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = bias ? in[4][static_cast<std::size_t>(j)] : 0;
        for (std::int64_t e = 0; e < k; ++e)
          sum += in[0][static_cast<std::size_t>(i * k + e)] * in[3][0] * weight[static_cast<std::size_t>(e)];
        y[static_cast<std::size_t>(i * n + j)] = sum;
      }
    }
    return std::vector<Tensor>{y};
  };
  return c;
}

TEST(Int8Linear, EqualsTheProductOfWhatTheIntegersStandFor) {
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{8, 48}, CodeFormat{4, 0}, CodeFormat{4, 64}})
    for (const std::int64_t m : {1, 3, 4, 7, 34})
      for (const std::int64_t n : {1, 6, 64, 131}) check_op(integers(format, m, n, 192, DType::f32, n != 64));
  // Rows that end within a vector, and of less than one.
  for (const std::int64_t k : {1, 7, 63, 65, 200}) check_op(integers({8, 0}, 5, 9, k, DType::f32, true));
  // Rows that several warps of a GPU share.
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{4, 64}})
    for (const std::int64_t m : {2, 9}) check_op(integers(format, m, 6, 4160, DType::f32, true));
}

TEST(Int8Linear, MakesSixteenBits) {
  for (const DType to : {DType::bf16, DType::f16})
    for (const std::int64_t m : {1, 20}) check_op(integers({8, 0}, m, 70, 128, to, true));
}

TEST(Int8Linear, ContractsSeveralDimensions) {
  OpCase c = integers({8, 0}, 6, 12, 64, DType::f32, true);
  c.inputs[0] = {DType::i8, {2, 3, 4, 16}};
  c.inputs[4] = {DType::f32, {3, 4}};
  c.attributes.set("x_split", std::int64_t{2});
  c.attributes.set("out", std::vector<std::int64_t>{3, 4});
  const auto flat = c.reference;
  c.reference = [flat](const std::vector<Tensor>& in) {
    std::vector<Tensor> out = flat(in);
    out[0].type.shape = {2, 3, 3, 4};
    return out;
  };
  check_op(c);
}

// The extremes, where a sum of 16 bits would wrap or saturate.
TEST(Int8Linear, SumsDoNotOverflow) {
  constexpr std::int64_t kCount = 4096 + 5;
  const std::vector<std::int8_t> most(kCount, 127), least(kCount, -127);
  const auto both = simd::dot_bytes<1, 1>(most.data(), kCount, most.data(), kCount, kCount);
  EXPECT_EQ(both[0][0], 127 * 127 * kCount);
  const auto mixed = simd::dot_bytes<1, 1>(least.data(), kCount, most.data(), kCount, kCount);
  EXPECT_EQ(mixed[0][0], -127 * 127 * kCount);
}

TEST(RoundToInt8, IsTheNearestWithinTheRange) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OpCase c;
    c.op = "round_to_int8";
    c.inputs = {{dtype, {3, 5, 7}}, {DType::f32, {}}};
    c.fill = [](std::size_t input, std::size_t i) {
      // The scale is a power of two: halves are halves, and ties are seen.
      return input == 1 ? 0.0625 : 0.03125 * (static_cast<double>(i * 53 % 601) - 300);
    };
    c.tolerance = 0;
    c.reference = [](const std::vector<Tensor>& in) {
      Tensor q = Tensor::zeros({DType::i8, in[0].type.shape});
      for (std::size_t i = 0; i < q.data.size(); ++i)
        q[i] = std::clamp(std::nearbyint(in[0][i] / in[1][0]), -127.0, 127.0);
      return std::vector<Tensor>{q};
    };
    check_op(c);
  }
}

TEST(RoundToInt8, AScaleOfZeroGivesZeros) {
  OpCase c;
  c.op = "round_to_int8";
  c.inputs = {{DType::f32, {9}}, {DType::f32, {}}};
  c.fill = [](std::size_t input, std::size_t i) { return input == 1 ? 0.0 : static_cast<double>(i) - 4; };
  c.tolerance = 0;
  c.reference = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{Tensor::zeros({DType::i8, in[0].type.shape})};
  };
  check_op(c);
}

TEST(LargestMagnitude, IsTheLargerOfBoth) {
  for (const double so_far : {0.0, 0.5, 9.0}) {
    OpCase c;
    c.op = "largest_magnitude";
    c.inputs = {{DType::f32, {4, 6}}, {DType::f32, {}}};
    c.fill = [so_far](std::size_t input, std::size_t i) {
      return input == 1 ? so_far : -0.125 * static_cast<double>(i);
    };
    c.tolerance = 0;
    c.reference = [](const std::vector<Tensor>& in) {
      Tensor y = in[1];
      for (const double v : in[0].data) y[0] = std::max(y[0], std::abs(v));
      return std::vector<Tensor>{y};
    };
    c.check_factors = false;  // pieces combine by maximum, not by sum
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme::ops
