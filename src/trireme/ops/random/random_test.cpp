#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded.h"
#include "support/op_check.h"
#include "trireme/core/rng.h"
#include "trireme/ops/random/random_init.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

constexpr std::int64_t kSite = 0x1234567;

OpCase dropout_case(DType dtype, const Shape& shape, double p, std::int64_t first_row) {
  OpCase c;
  c.op = "dropout";
  c.inputs = {{dtype, shape}, {DType::i64, {3}}};
  c.attributes = {{"p", p}, {"site", kSite}};
  c.fill = [first_row](std::size_t input, std::size_t i) {
    if (input == 1) return i == 0 ? 42.0 : i == 1 ? 9.0 : static_cast<double>(first_row);
    return 0.5 + static_cast<double>(i % 97) / 64;
  };
  c.tolerance = dtype == DType::f32 ? 2e-6 : 1e-2;
  c.check_factors = false;  // a piece of the rows comes with another first row
  c.reference = [p](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    const std::size_t width = y.data.size() / static_cast<std::size_t>(y.type.shape[0]);
    const RandomStream stream{42, kSite, 9};
    for (std::size_t e = 0; e < y.data.size(); ++e) {
      const auto row = static_cast<std::uint64_t>(in[1][2]) + e / width;
      const std::uint32_t word = stream.words(row, e % width / 4)[e % width % 4];
      y[e] = static_cast<double>(to_unit(word)) >= p ? in[0][e] / (1 - p) : 0;
    }
    return std::vector<Tensor>{y};
  };
  return c;
}

TEST(Dropout, KeepsByGlobalRowAndElement) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 7}, Shape{5, 33, 65}, Shape{2, 5000}})
      for (const double p : {0.0, 0.1, 0.5}) {
        OpCase c = dropout_case(dtype, shape, p, 6);
        if (dtype == DType::f32 && shape.elements() < 3000) c.differentiate = {0};
        check_op(c);
      }
}

TEST(RandomInit, SlicesAgreeWithTheWhole) {
  for (const std::string kind : {"normal", "uniform", "constant", "zeros"}) {
    std::vector<float> whole(1003);
    random_elements(kind, 0.5, 11, kSite, 0, whole);
    for (const std::int64_t first : {0, 1, 2, 3, 4, 501, 1000}) {
      std::vector<float> part(static_cast<std::size_t>(std::min<std::int64_t>(77, 1003 - first)));
      random_elements(kind, 0.5, 11, kSite, first, part);
      for (std::size_t i = 0; i < part.size(); ++i)
        ASSERT_EQ(part[i], whole[static_cast<std::size_t>(first) + i]) << kind;
    }
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      OpCase c;
      c.op = "random_init";
      c.inputs = {{DType::i64, {}}};
      c.attributes = {{"kind", kind},
                      {"a", 0.5},
                      {"site", kSite},
                      {"shape", std::vector<std::int64_t>{17, 59}},
                      {"dtype", std::string(name_of(dtype))}};
      c.fill = [](std::size_t, std::size_t) { return 11.0; };
      // A GPU's logarithm and sine are not the CPU's in the last bit.
      const bool last_bit = kind == "normal" && testing::test_device() != device::Kind::cpu;
      c.tolerance = dtype != DType::f32 ? 1e-2 : last_bit ? 1e-7 : 0;
      c.reference = [&](const std::vector<Tensor>&) {
        Tensor y = Tensor::zeros({dtype, {17, 59}});
        for (std::size_t i = 0; i < y.data.size(); ++i) y[i] = whole[i];
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
  }
}

TEST(RandomInit, IntegersAreZeros) {
  for (const DType dtype : {DType::i8, DType::u8, DType::i32}) {
    OpCase c;
    c.op = "random_init";
    c.inputs = {{DType::i64, {}}};
    c.attributes = {{"kind", std::string("zeros")},
                    {"a", 0.0},
                    {"site", kSite},
                    {"shape", std::vector<std::int64_t>{17, 59}},
                    {"dtype", std::string(name_of(dtype))}};
    c.fill = [](std::size_t, std::size_t) { return 11.0; };
    c.tolerance = 0;
    c.reference = [&](const std::vector<Tensor>&) { return std::vector<Tensor>{Tensor::zeros({dtype, {17, 59}})}; };
    check_op(c);
  }
}

TEST(RandomInit, HasTheMomentsItClaims) {
  std::vector<float> values(200000);
  const auto moments = [&] {
    double mean = 0;
    double square = 0;
    for (const float v : values) {
      mean += v / static_cast<double>(values.size());
      square += static_cast<double>(v) * v / static_cast<double>(values.size());
    }
    return std::pair{mean, std::sqrt(square - mean * mean)};
  };
  random_elements("normal", 2.0, 3, kSite, 0, values);
  EXPECT_NEAR(moments().first, 0, 0.03);
  EXPECT_NEAR(moments().second, 2, 0.02);
  random_elements("uniform", 2.0, 3, kSite, 0, values);
  EXPECT_NEAR(moments().first, 0, 0.02);
  EXPECT_NEAR(moments().second, 2 / std::sqrt(3.0), 0.01);
  for (const float v : values) ASSERT_TRUE(v >= -2 && v < 2);
}

}  // namespace
}  // namespace trireme::ops
