#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/ops/compress/orthonormalise.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// Below this part of its length, what is left of a column is the rounding of f32.
constexpr double kDependent = 1e-6;

double product(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Takes from column `c` what it has of those before it; gives its length then.
double clear(double* columns, std::int64_t c, std::int64_t n) {
  double* x = columns + c * n;
  for (int round = 0; round < 2; ++round)
    for (std::int64_t k = 0; k < c; ++k) {
      const double* q = columns + k * n;
      const double along = product(x, q, n);
      for (std::int64_t i = 0; i < n; ++i) x[i] -= along * q[i];
    }
  return std::sqrt(product(x, x, n));
}

// There is one with at least this length left, since the squares of all of them sum up to n − c.
double unit_vector(double* columns, std::int64_t c, std::int64_t n) {
  const double enough = std::sqrt(0.5 * static_cast<double>(n - c) / static_cast<double>(n));
  double length = 0;
  for (std::int64_t k = 0; k < n && !(length >= enough); ++k) {
    std::fill_n(columns + c * n, n, 0.0);
    columns[c * n + k] = 1;
    length = clear(columns, c, n);
  }
  return length;
}

}  // namespace

std::size_t orthonormalise_workspace(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.inputs[0].elements()) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_orthonormalise_cpu(const ir::KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].shape[0], r = spec.inputs[0].shape[1]](const device::Launch& launch) {
    auto* columns = static_cast<double*>(launch.workspace);  // one behind the other
    const auto* x = launch.in<float>(0);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < r; ++c) columns[c * n + i] = static_cast<double>(x[i * r + c]);
    for (std::int64_t c = 0; c < r; ++c) {
      const double before = std::sqrt(product(columns + c * n, columns + c * n, n));
      double length = clear(columns, c, n);
      if (length <= kDependent * before) length = unit_vector(columns, c, n);
      for (std::int64_t i = 0; i < n; ++i) columns[c * n + i] /= length;
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < r; ++c) launch.out<float>(0)[i * r + c] = static_cast<float>(columns[c * n + i]);
  });
}

}  // namespace trireme::ops
