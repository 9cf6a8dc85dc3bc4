#include "trireme/ops/compress/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

const std::vector<std::int64_t> kSizes = {1, 3, 7, 17, 33, 65, 1000, 2049};

double wave(std::size_t i) {
  return std::sin(1.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 23) - 11);
}

template <class V>
void put(Tensor& packed, std::size_t at, V value) {
  std::uint8_t bytes[sizeof(V)];
  std::memcpy(bytes, &value, sizeof value);
  for (std::size_t i = 0; i < sizeof(V); ++i) packed[at + i] = bytes[i];
}

// Two bits behind the first one, from the definition.
float rounded_to_byte(float magnitude) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(magnitude), &exponent);
  return magnitude == 0 ? 0.0F : static_cast<float>(std::ldexp(std::floor(8 * fraction + 0.5) / 8, exponent));
}

TEST(ByteFloat, RoundsToTheNearest) {
  for (float magnitude = 1e-13F; magnitude < 7.5e5F; magnitude *= 1.0137F)
    EXPECT_EQ(ByteFloat::decode(ByteFloat::encode(magnitude)), rounded_to_byte(magnitude)) << magnitude;
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(ByteFloat::encode(ByteFloat::decode(static_cast<std::uint8_t>(code))), code);
  EXPECT_EQ(ByteFloat::encode(1e-20F), 0);
  EXPECT_EQ(ByteFloat::encode(1e20F), 254);
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(std::isnan(ByteFloat::decode(ByteFloat::encode(wrong))));
}

// Plainly: what pack gives, and what unpack would make of it.
struct Packed {
  Tensor bytes;
  std::vector<float> back;
};
Packed packed(const std::vector<float>& a, const std::string& code, std::int64_t parts, std::int64_t block) {
  const auto n = static_cast<std::int64_t>(a.size());
  const PackLayout l(code, n, parts, block);
  Packed p{Tensor::zeros({DType::u8, {parts, l.bytes}}), std::vector<float>(a.size(), 0.0F)};
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t from = part * l.chunk;
    std::int64_t end = std::clamp<std::int64_t>(n - from, 0, l.chunk);
    const auto row = static_cast<std::size_t>(part * l.bytes);
    if (code == "sign") {
      while (end > 0 && a[static_cast<std::size_t>(from + end - 1)] == 0) --end;
      put(p.bytes, row, static_cast<std::int32_t>(end));
    }
    for (std::int64_t first = 0; first < end; first += block) {
      const std::int64_t count = std::min(block, end - first);
      const float* x = a.data() + from + first;
      float* back = p.back.data() + from + first;
      float most = 0;
      double sums[8] = {};
      for (std::int64_t i = 0; i < count; ++i) {
        most = std::max(most, std::abs(x[i]));
        sums[i % 8] += static_cast<double>(std::abs(x[i]));
      }
      double sum = 0;
      for (const double s : sums) sum += s;
      const float others =
          count == 1 ? most : static_cast<float>((sum - static_cast<double>(most)) / static_cast<double>(count - 1));
      const float scale = rounded_to_byte(others);
      const std::int64_t apart = std::find_if(x, x + count, [&](float value) { return std::abs(value) == most; }) - x;
      if (code == "int8") put(p.bytes, row + static_cast<std::size_t>(first / block * 4), most / 127.0F);
      if (code == "sign") {
        p.bytes[row + static_cast<std::size_t>(l.scales + first / block)] = ByteFloat::encode(others);
        const std::uint32_t largest = ByteFloat::encode(most) + (x[apart] < 0 ? 256U : 0U);
        put(p.bytes, row + static_cast<std::size_t>(l.apart + first / block * 2),
            static_cast<std::uint16_t>(largest + 512U * static_cast<std::uint32_t>(apart)));
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const std::size_t at = row + static_cast<std::size_t>(l.codes);
        const auto e = static_cast<std::size_t>(first + i);
        if (code == "bf16") {
          back[i] = static_cast<float>(BFloat16(x[i]));
          put(p.bytes, at + 2 * e, BFloat16(x[i]));
        } else if (code == "int8") {
          const float q = most == 0 ? 0 : std::nearbyintf(x[i] * (127.0F / most));
          back[i] = q * (most / 127.0F);
          p.bytes[at + e] = static_cast<double>(static_cast<std::uint8_t>(static_cast<std::int8_t>(q)));
        } else {
          const float magnitude = i == apart ? rounded_to_byte(most) : scale;
          back[i] = x[i] < 0 ? -magnitude : magnitude;
          if (x[i] < 0) p.bytes[at + e / 8] += std::exp2(static_cast<double>(e % 8));
        }
      }
    }
  }
  return p;
}

class Pack : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Codes, Pack, ::testing::Values("bf16", "int8", "sign"));

TEST_P(Pack, CodesTheSumAndGivesWhatIsLeft) {
  const std::string code = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : kSizes)
      for (const std::int64_t parts : {1, 3, 4})
        for (const std::int64_t block : {8, 128})
          for (const bool carried : {false, true}) {
            OpCase c;
            c.op = "pack";
            c.inputs = {{dtype, {n}},
                        carried ? TensorType{DType::f32, {1, n}} : TensorType::none(),
                        carried ? TensorType{DType::f32, {}} : TensorType::none()};
            c.attributes = {{"code", code}, {"parts", parts}, {"block", block}};
            // The last elements are zero.
            c.fill = [&](std::size_t input, std::size_t i) {
              if (input == 2) return 4.0;
              return static_cast<std::int64_t>(i) > n - n / 5 ? 0.0 : wave(i + 100 * input);
            };
            c.tolerance = 0;
            c.reference = [&](const std::vector<Tensor>& in) {
              std::vector<float> a(in[0].data.size());
              for (std::size_t i = 0; i < a.size(); ++i)
                a[i] = carried ? static_cast<float>(in[0][i]) * 0.25F + static_cast<float>(in[1][i])
                               : static_cast<float>(in[0][i]);
              const Packed p = packed(a, code, parts, block);
              std::vector<Tensor> out = {p.bytes};
              if (carried) {
                out.push_back(Tensor::zeros(in[1].type));
                for (std::size_t i = 0; i < a.size(); ++i) out[1][i] = static_cast<double>(a[i] - p.back[i]);
              }
              return out;
            };
            check_op(c);
          }
}

TEST_P(Pack, UnpackGivesThePartsOrTheirSum) {
  const std::string code = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : kSizes)
      for (const std::int64_t parts : {1, 3})
        for (const bool sum : {false, true}) {
          constexpr std::int64_t kBlock = 64;
          // As a sum, every part is a tensor of its own, of as many elements as a part has.
          const std::int64_t elements = sum ? PackLayout(code, n, 1, kBlock).chunk : n;
          std::vector<float> a(static_cast<std::size_t>(sum ? parts * elements : n));
          for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(wave(i));
          const Packed p = packed(a, code, parts, kBlock);
          OpCase c;
          c.op = "unpack";
          c.inputs = {p.bytes.type, {DType::f32, {}}};
          c.attributes = {{"code", code},
                          {"block", kBlock},
                          {"shape", std::vector<std::int64_t>{elements}},
                          {"dtype", std::string(name_of(dtype))},
                          {"sum", sum}};
          c.fill = [&](std::size_t input, std::size_t i) { return input == 1 ? 2.0 : p.bytes[i]; };
          c.tolerance = sum ? 2e-7 : 0;  // a product may be added without being rounded first
          if (sum && dtype != DType::f32) c.tolerance = 1e-2;
          c.reference = [&](const std::vector<Tensor>&) {
            Tensor y = Tensor::zeros({dtype, {elements}});
            for (std::size_t i = 0; i < y.data.size(); ++i) {
              float value = p.back[i];
              if (sum)
                for (std::int64_t part = 1; part < parts; ++part)
                  value += p.back[static_cast<std::size_t>(part * elements) + i];
              y[i] = round_to(static_cast<double>(value * 2.0F), dtype);
            }
            return std::vector<Tensor>{y};
          };
          check_op(c);
        }
}

TEST_P(Pack, WhatIsNotFiniteStaysSo) {
  const ir::Registry registry = builtin();
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(100, 0.5F);
    x[37] = bad;
    const PackLayout l(GetParam(), 100, 1, 128);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(l.bytes));
    std::vector<float> back(100);
    const TensorType type{DType::f32, {100}}, small{DType::u8, {1, l.bytes}};
    ThreadPool pool(1);
    const auto launch = [&](const char* op, const ir::Types& in_types, const TensorType& out_type,
                            const ir::Attributes& attributes, std::vector<const void*> in, std::vector<void*> out) {
      const ir::Types out_types = {out_type};
      registry.at(op)
          .kernels.at(device::Kind::cpu)
          .prepare({in_types, out_types, attributes})
          ->launch({in, out, nullptr, &pool});
    };
    launch("pack", {type, TensorType::none(), TensorType::none()}, small,
           {{"code", std::string(GetParam())}, {"block", std::int64_t{128}}, {"parts", std::int64_t{1}}},
           {x.data(), nullptr, nullptr}, {bytes.data()});
    launch("unpack", {small, TensorType::none()}, type,
           {{"code", std::string(GetParam())}, {"block", std::int64_t{128}}, {"sum", false}}, {bytes.data(), nullptr},
           {back.data()});
    EXPECT_FALSE(std::isfinite(back[37])) << bad;
  }
}

}  // namespace
}  // namespace trireme::ops
