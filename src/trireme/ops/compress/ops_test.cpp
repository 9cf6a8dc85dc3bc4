// weighted_sum, orthonormalise, take_largest and add_taken against plain references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/op_check.h"
#include "trireme/ops/compress/take_largest.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

const TensorType kScalar{DType::f32, {}};

double wave(std::size_t i) { return std::sin(1.7 * static_cast<double>(i) + 0.3); }

TEST(WeightedSum, AddsTwoTensorsOfAnyShape) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : {1, 3, 7, 17, 33, 65, 9000})
      for (const bool both : {false, true})
        for (const bool scaled : {false, true}) {
          OpCase c;
          c.op = "weighted_sum";
          c.inputs = {both ? TensorType{DType::f32, {n}} : TensorType::none(),
                      {dtype, {1, n}},
                      scaled ? kScalar : TensorType::none(),
                      scaled ? kScalar : TensorType::none()};
          c.attributes = {{"a_weight", 0.25}, {"b_weight", -3.0}, {"shape", std::vector<std::int64_t>{1, 1, n}}};
          c.fill = [](std::size_t input, std::size_t i) {
            return input >= 2 ? 1.5 * static_cast<double>(input) : wave(i);
          };
          c.reference = [&](const std::vector<Tensor>& in) {
            Tensor y = Tensor::zeros({DType::f32, {1, 1, n}});
            const double factor = scaled ? in[2][0] / in[3][0] : 1.0;
            for (std::size_t i = 0; i < y.data.size(); ++i)
              y[i] = (both ? 0.25 * in[0][i] : 0.0) - 3.0 * factor * in[1][i];
            return std::vector<Tensor>{y};
          };
          check_op(c);
        }
}

// Plain Gram-Schmidt on independent columns.
std::vector<Tensor> gram_schmidt(const Tensor& x) {
  Tensor q = x;
  const auto n = static_cast<std::size_t>(x.type.shape[0]);
  const auto r = static_cast<std::size_t>(x.type.shape[1]);
  for (std::size_t c = 0; c < r; ++c) {
    for (int round = 0; round < 2; ++round)
      for (std::size_t k = 0; k < c; ++k) {
        double along = 0;
        for (std::size_t i = 0; i < n; ++i) along += q[i * r + c] * q[i * r + k];
        for (std::size_t i = 0; i < n; ++i) q[i * r + c] -= along * q[i * r + k];
      }
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) square += q[i * r + c] * q[i * r + c];
    for (std::size_t i = 0; i < n; ++i) q[i * r + c] /= std::sqrt(square);
  }
  return {q};
}

TEST(Orthonormalise, GivesOrthonormalColumns) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 2}, Shape{7, 7}, Shape{65, 4}, Shape{1000, 3}}) {
    OpCase c;
    c.op = "orthonormalise";
    c.inputs = {{DType::f32, shape}};
    c.fill = [](std::size_t, std::size_t i) { return wave(i * i); };
    c.reference = [](const std::vector<Tensor>& in) { return gram_schmidt(in[0]); };
    check_op(c);
  }
}

TEST(Orthonormalise, ReplacesColumnsThatDependOnOthers) {
  OpCase c;
  c.op = "orthonormalise";
  c.inputs = {{DType::f32, {5, 3}}};
  // The second is twice the first, the third is zero.
  c.fill = [](std::size_t, std::size_t i) {
    return i % 3 == 2 ? 0.0 : static_cast<double>(i % 3 + 1) * (i < 3 ? 1 : 0);
  };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor q = Tensor::zeros(in[0].type);
    for (std::size_t k = 0; k < 3; ++k) q[k * 3 + k] = 1;
    return std::vector<Tensor>{q};
  };
  check_op(c);
}

template <class V>
void put(Tensor& bytes, std::int64_t at, V value) {
  std::uint8_t raw[sizeof(V)];
  std::memcpy(raw, &value, sizeof value);
  for (std::size_t i = 0; i < sizeof(V); ++i) bytes[static_cast<std::size_t>(at) + i] = raw[i];
}

// The elements at `indices`, which rise, in their packed form.
void put_taken(Tensor& bytes, std::int64_t row, const std::vector<float>& from,
               const std::vector<std::size_t>& indices) {
  const TakenLayout l(std::ssize(from), std::ssize(indices));
  std::vector<std::int32_t> held(static_cast<std::size_t>(l.segments), 0);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::size_t i = indices[k];
    ++held[i / 65536];
    put(bytes, row * l.bytes + l.values + 4 * static_cast<std::int64_t>(k), from[i]);
    put(bytes, row * l.bytes + l.indices + 2 * static_cast<std::int64_t>(k), static_cast<std::uint16_t>(i % 65536));
  }
  for (std::int64_t s = 0; s < l.segments; ++s) put(bytes, row * l.bytes + 4 * s, held[static_cast<std::size_t>(s)]);
}

std::vector<std::size_t> largest(const std::vector<float>& v, std::int64_t count) {
  std::vector<std::size_t> order(v.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TakeLargest, TakesThemAndLeavesTheRest) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : {1, 3, 17, 65, 1000, 70000})
      for (const std::int64_t count : {std::int64_t{1}, (n + 9) / 10, n})
        for (const auto& [waits, mask] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
          OpCase c;
          c.op = "take_largest";
          const TensorType f32{DType::f32, {1, n}};
          c.inputs = {{dtype, {n}}, f32, waits ? f32 : TensorType::none(), kScalar};
          c.attributes = {{"decay", 0.5}, {"count", count}, {"mask", mask}};
          // Multiples of 1/8 have many equals, and sums of them are exact.
          c.fill = [](std::size_t input, std::size_t i) {
            return input == 3 ? 2.0 : std::round(8 * wave(i * 7 + input)) / 8;
          };
          c.tolerance = 0;
          c.reference = [&, waits = waits, mask = mask](const std::vector<Tensor>& in) {
            const TakenLayout layout(n, count);
            std::vector<Tensor> out = {Tensor::zeros({DType::u8, {1, layout.bytes}}), Tensor::zeros(f32)};
            std::vector<float> v(static_cast<std::size_t>(n));
            for (std::size_t i = 0; i < v.size(); ++i) {
              out[1][i] = 0.5 * in[1][i] + 2 * in[0][i];
              v[i] = static_cast<float>(out[1][i] + (waits ? in[2][i] : 0.0));
            }
            const std::vector<std::size_t> indices = largest(v, count);
            put_taken(out[0], 0, v, indices);
            if (waits) {
              out.push_back(Tensor::zeros(f32));
              for (std::size_t i = 0; i < v.size(); ++i) out[2][i] = static_cast<double>(v[i]);
              for (const std::size_t i : indices) out[2][i] = 0;
              if (mask)
                for (const std::size_t i : indices) out[1][i] = 0;
            }
            return out;
          };
          check_op(c);
        }
}

TEST(AddTaken, SumsWhatWasTaken) {
  for (const std::int64_t n : {1, 3, 17, 1000, 140000}) {
    const std::int64_t count = (n + 99) / 100;
    const std::int64_t parts = 3;
    Tensor taken = Tensor::zeros({DType::u8, {parts, TakenLayout(n, count).bytes}});
    Tensor sum = Tensor::zeros({DType::f32, {n}});
    for (std::int64_t p = 0; p < parts; ++p) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < v.size(); ++i)
        v[i] = static_cast<float>(std::round(1000 * wave(i * static_cast<std::size_t>(p + 1))) / 8);
      const std::vector<std::size_t> indices = largest(v, count);
      put_taken(taken, p, v, indices);
      for (const std::size_t i : indices) sum[i] += static_cast<double>(v[i]);
    }
    OpCase c;
    c.op = "add_taken";
    c.inputs = {taken.type};
    c.attributes = {{"count", count}, {"shape", std::vector<std::int64_t>{n}}};
    c.fill = [&](std::size_t, std::size_t i) { return taken[i]; };
    c.tolerance = 0;
    c.reference = [&](const std::vector<Tensor>&) { return std::vector<Tensor>{sum}; };
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme::ops
