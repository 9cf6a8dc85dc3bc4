#include "trireme/ops/matmul/gated.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::round_to;
using testing::Tensor;

struct Sizes {
  std::int64_t m, n, k;
};
// Around the tiles of a GPU's kernel (128 × 256 × 64 and half of that), and such as it does not take.
const std::vector<Sizes> kSizes = {{1, 8, 8},     {3, 7, 5},       {130, 136, 72},  {128, 128, 64},
                                   {257, 264, 8}, {300, 520, 136}, {1000, 24, 200}, {513, 1032, 64}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// a[m,k]·b, b stored [n,k] or [k,n], rounded as what is saved is.
std::vector<double> product(const Tensor& a, const Tensor& b, const Sizes& z, bool trans_b) {
  const auto m = static_cast<std::size_t>(z.m), n = static_cast<std::size_t>(z.n), k = static_cast<std::size_t>(z.k);
  std::vector<double> y(m * n);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * (trans_b ? b[j * k + l] : b[l * n + j]);
      y[i * n + j] = round_to(sum, a.type.dtype);
    }
  return y;
}

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 3e-6 : 1e-2; }

TEST(GatedLinear, LikeItsParts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& z : kSizes) {
      OpCase c;
      c.op = "gated_linear";
      c.inputs = {{dtype, {z.m, z.k}}, {dtype, {z.n, z.k}}, {dtype, {z.n, z.k}}};
      c.attributes = {{"trans_b", true}};
      c.tolerance = tolerance_of(dtype);
      c.reference = [z, dtype](const std::vector<Tensor>& in) {
        Tensor y = Tensor::zeros({dtype, {z.m, z.n}}), gate = y, up = y;
        gate.data = product(in[0], in[1], z, true);
        up.data = product(in[0], in[2], z, true);
        for (std::size_t i = 0; i < y.data.size(); ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
        return std::vector<Tensor>{y, gate, up};
      };
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", name_of(dtype), z.m, z.n, z.k));
      check_op(c);
    }
}

TEST(GatedLinear, GradientLikeItsParts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& z : kSizes) {
      OpCase c;
      c.op = "gated_linear_grad";
      const TensorType y{dtype, {z.m, z.n}};
      c.inputs = {{dtype, {z.m, z.k}}, {dtype, {z.k, z.n}}, y, y};
      c.tolerance = tolerance_of(dtype);
      c.reference = [z, y](const std::vector<Tensor>& in) {
        const std::vector<double> d = product(in[0], in[1], z, false);
        Tensor dgate = Tensor::zeros(y), dup = dgate;
        for (std::size_t i = 0; i < d.size(); ++i) {
          const double gate = in[2][i], s = sigmoid(gate);
          dgate[i] = d[i] * in[3][i] * s * (1 + gate * (1 - s));
          dup[i] = d[i] * gate * s;
        }
        return std::vector<Tensor>{dgate, dup};
      };
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", name_of(dtype), z.m, z.n, z.k));
      check_op(c);
    }
}

}  // namespace
}  // namespace trireme::ops
