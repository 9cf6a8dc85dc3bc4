#include "trireme/ops/quantize/quantized_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/op_check.h"
#include "trireme/ops/quantize/round_to_codes.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

// All of rows with 192 elements.
const std::vector<CodeFormat> kFormats = {{8, 0}, {8, 32}, {8, 48}, {4, 0}, {4, 32}, {4, 64}, {4, 96}};
constexpr std::int64_t kElements = 192;

// Bytes of codes as check_op wants them, and elements back from them.
double code_byte(std::size_t i, int bits) {
  return bits == 8 ? static_cast<double>(i * 37 % 255) - 127 : static_cast<double>(i * 59 % 256);
}

std::vector<double> elements(const Tensor& codes, const Tensor& scale, const CodeFormat& format, std::int64_t row,
                             std::int64_t k) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(format.row_bytes(k)));
  for (std::size_t b = 0; b < bytes.size(); ++b)
    bytes[b] = static_cast<std::byte>(static_cast<int>(codes[static_cast<std::size_t>(row) * bytes.size() + b]));
  std::vector<double> found;
  for (std::int64_t c = 0; c < k; ++c)
    found.push_back(load_code(bytes.data(), c, format.bits) *
                    scale[static_cast<std::size_t>(row * format.groups(k) + c / format.group_of(k))]);
  return found;
}

OpCase product(const CodeFormat& format, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, bool bias) {
  OpCase c;
  c.op = "quantized_linear";
  c.inputs = {{dtype, {m, k}},
              format.codes(n, k),
              format.scales(n, k),
              bias ? TensorType{DType::f32, {n}} : TensorType::none()};
  c.attributes = code_attributes(format);
  c.attributes.set("x_split", std::int64_t{1});
  c.attributes.set("out", std::vector<std::int64_t>{n});
  c.fill = [format](std::size_t input, std::size_t i) {
    if (input == 1) return code_byte(i, format.bits);
    if (input == 2) return 0.01 * (1 + static_cast<double>(i % 7)) * (i % 5 == 0 ? -1 : 1);
    return std::sin(1.3 * static_cast<double>(i) + static_cast<double>(input));
  };
  c.tolerance = dtype == DType::f32 ? 2e-6 : 1e-2;
  c.reference = [=](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({dtype, {m, n}});
    for (std::int64_t j = 0; j < n; ++j) {
      const std::vector<double> row = elements(in[1], in[2], format, j, k);
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = bias ? in[3][static_cast<std::size_t>(j)] : 0;
        for (std::int64_t e = 0; e < k; ++e)
          sum += in[0][static_cast<std::size_t>(i * k + e)] * row[static_cast<std::size_t>(e)];
        y[static_cast<std::size_t>(i * n + j)] = sum;
      }
    }
    return std::vector<Tensor>{y};
  };
  return c;
}

TEST(QuantizedLinear, EqualsTheProductWithWhatTheCodesStandFor) {
  for (const CodeFormat& format : kFormats)
    for (const std::int64_t m : {1, 3, 8, 9, 33})
      for (const std::int64_t n : {1, 64, 130}) check_op(product(format, m, n, kElements, DType::f32, n != 64));
  // Rows that end within a vector.
  for (const std::int64_t k : {1, 7, 50, 77}) check_op(product({8, 0}, 2, 5, k, DType::f32, true));
}

// Rows that several warps of a GPU share, and matrices of more than one tile.
TEST(QuantizedLinear, LongRowsAndManyOfThem) {
  const auto check = [](const CodeFormat& format, std::int64_t m, std::int64_t n, DType dtype) {
    OpCase c = product(format, m, n, 4160, dtype, true);
    c.tolerance = std::max(c.tolerance, 1e-5);  // sums of so many in f32
    check_op(c);
  };
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{4, 64}})
    for (const std::int64_t m : {1, 2}) check(format, m, 70, DType::f32);
  check({8, 64}, 3, 1100, DType::f32);
  check({4, 0}, 6, 1100, DType::bf16);
  check({4, 64}, 9, 1100, DType::f32);
}

TEST(QuantizedLinear, TakesSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{4, 64}})
      for (const std::int64_t m : {1, 20}) check_op(product(format, m, 70, 128, dtype, true));
}

TEST(QuantizedLinear, ContractsSeveralDimensions) {
  OpCase c = product({4, 32}, 6, 12, 64, DType::f32, true);
  c.inputs[0] = {DType::f32, {2, 3, 4, 16}};
  c.inputs[3] = {DType::f32, {3, 4}};
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

TEST(QuantizedEmbedding, GivesRows) {
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{8, 32}, CodeFormat{4, 64}}) {
    OpCase c;
    c.op = "quantized_embedding";
    constexpr std::int64_t kRows = 11, kWidth = 128;
    c.inputs = {{DType::i32, {2, 5}}, format.codes(kRows, kWidth), format.scales(kRows, kWidth)};
    c.attributes = code_attributes(format);
    c.attributes.set("width", kWidth);
    c.fill = [format](std::size_t input, std::size_t i) {
      return input == 0   ? static_cast<double>(i * 3 % kRows)
             : input == 1 ? code_byte(i, format.bits)
                          : 0.02 * static_cast<double>(i % 9);
    };
    c.reference = [=](const std::vector<Tensor>& in) {
      Tensor y = Tensor::zeros({DType::f32, {2, 5, kWidth}});
      for (std::size_t t = 0; t < 10; ++t) {
        const std::vector<double> row = elements(in[1], in[2], format, static_cast<std::int64_t>(in[0][t]), kWidth);
        std::copy(row.begin(), row.end(), y.data.begin() + static_cast<std::ptrdiff_t>(t * kWidth));
      }
      return std::vector<Tensor>{y};
    };
    check_op(c);
  }
}

TEST(DequantizeRows, MultipliesByTheScale) {
  for (const CodeFormat& format : kFormats) {
    OpCase c;
    c.op = "dequantize_rows";
    constexpr std::int64_t kRows = 5, kWidth = kElements;
    c.inputs = {format.codes(kRows, kWidth), format.scales(kRows, kWidth)};
    c.attributes = code_attributes(format);
    c.attributes.set("width", kWidth);
    c.fill = [format](std::size_t input, std::size_t i) {
      return input == 0 ? code_byte(i, format.bits) : 0.02 * static_cast<double>(i % 9);
    };
    c.reference = [=](const std::vector<Tensor>& in) {
      Tensor y = Tensor::zeros({DType::f32, {kRows, kWidth}});
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::vector<double> row = elements(in[0], in[1], format, r, kWidth);
        std::copy(row.begin(), row.end(), y.data.begin() + r * kWidth);
      }
      return std::vector<Tensor>{y};
    };
    check_op(c);
  }
}

std::vector<float> normal(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& v : values) v = draw(random);
  return values;
}

TEST(Codes, AreTheNearest) {
  constexpr std::int64_t kRows = 7, kWidth = kElements;
  const std::vector<float> rows = normal(kRows * kWidth);
  for (const CodeFormat& format : kFormats) {
    std::vector<std::byte> codes(format.codes(kRows, kWidth).bytes());
    std::vector<float> scales(static_cast<std::size_t>(format.scales(kRows, kWidth).elements())), back(rows.size());
    quantize_rows(rows.data(), kRows, kWidth, format, codes.data(), scales.data());
    dequantize_rows(codes.data(), scales.data(), kRows, kWidth, format, back.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const float scale = std::abs(scales[i / static_cast<std::size_t>(format.group_of(kWidth))]);
      // The largest of the other sign may lie a whole step beyond the last code of 4 bits.
      EXPECT_LE(std::abs(rows[i] - back[i]), (format.bits == 8 ? 0.5001F : 1.0001F) * scale)
          << format.str() << " " << i;
      if (std::abs(rows[i]) < 7 * scale) {
        EXPECT_LE(std::abs(rows[i] - back[i]), 0.5001F * scale) << i;
      }
    }
  }
}

TEST(Codes, OfZerosAreZeros) {
  const std::vector<float> rows(64, 0.0F);
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{4, 32}}) {
    std::vector<std::byte> codes(format.codes(1, 64).bytes());
    std::vector<float> scales(static_cast<std::size_t>(format.groups(64))), back(64, 1.0F);
    quantize_rows(rows.data(), 1, 64, format, codes.data(), scales.data());
    dequantize_rows(codes.data(), scales.data(), 1, 64, format, back.data());
    EXPECT_EQ(back, rows);
  }
}

TEST(Codes, SayWhatDoesNotFit) {
  EXPECT_EQ((CodeFormat{8, 64}).problem(128), "");
  EXPECT_NE((CodeFormat{8, 48}).problem(128).find("groups of 48 do not divide rows of 128"), std::string::npos);
  EXPECT_NE((CodeFormat{4, 0}).problem(40).find("multiple of 32"), std::string::npos);
  EXPECT_NE((CodeFormat{4, 16}).problem(64).find("multiple of 32"), std::string::npos);
}

TEST(RoundToCodes, IsWhatTheCodesStandFor) {
  for (const CodeFormat& format : {CodeFormat{8, 0}, CodeFormat{4, 0}, CodeFormat{4, 32}}) {
    OpCase c;
    c.op = "round_to_codes";
    c.inputs = {{DType::f32, {3, 2, 64}}};
    c.attributes = code_attributes(format);
    c.tolerance = 0;
    c.reference = [format](const std::vector<Tensor>& in) {
      std::vector<float> x(in[0].data.begin(), in[0].data.end()), back(x.size());
      std::vector<std::byte> codes(format.codes(6, 64).bytes());
      std::vector<float> scales(static_cast<std::size_t>(6 * format.groups(64)));
      quantize_rows(x.data(), 6, 64, format, codes.data(), scales.data());
      dequantize_rows(codes.data(), scales.data(), 6, 64, format, back.data());
      return std::vector<Tensor>{{in[0].type, {back.begin(), back.end()}}};
    };
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme::ops
