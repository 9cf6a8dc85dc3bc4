#include "trireme/ops/matmul/few_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "trireme/ops/define.h"
#include "trireme/ops/matmul/epilogue.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kColumns = 64;  // of a task

// M rows of a by J rows of b: as many sums as fit the registers beside their operands.
template <std::size_t M, std::size_t J, class T>
HWY_INLINE void dot(const T* a, const T* b, std::int64_t n, std::int64_t k, float* sums) {
  std::array<std::array<simd::Vec, J>, M> sum;
  for (auto& row : sum) row.fill(simd::zero());
  simd::for_vectors(k, [&](std::int64_t at, std::int64_t count) {
    std::array<simd::Vec, J> right;
    for (std::size_t j = 0; j < J; ++j) right[j] = simd::load_n(b + static_cast<std::int64_t>(j) * k + at, count);
    for (std::size_t i = 0; i < M; ++i) {
      const simd::Vec left = simd::load_n(a + static_cast<std::int64_t>(i) * k + at, count);
      for (std::size_t j = 0; j < J; ++j) sum[i][j] = simd::hn::MulAdd(left, right[j], sum[i][j]);
    }
  });
  for (std::size_t i = 0; i < M; ++i)
    for (std::size_t j = 0; j < J; ++j)
      sums[static_cast<std::int64_t>(i) * n + static_cast<std::int64_t>(j)] = simd::sum(sum[i][j]);
}

template <std::size_t M, class T>
void rows(const T* a, const T* b, std::int64_t n, std::int64_t k, float* sums) {
  constexpr std::int64_t kTogether = M <= 4 ? 4 : 2;
  std::int64_t j = 0;
  for (; j + kTogether <= n; j += kTogether) dot<M, static_cast<std::size_t>(kTogether)>(a, b + j * k, n, k, sums + j);
  for (; j < n; ++j) dot<M, 1>(a, b + j * k, n, k, sums + j);
}

template <class T>
using Rows = void (*)(const T* a, const T* b, std::int64_t n, std::int64_t k, float* sums);

// For m rows of a, 1 … kFewRows.
template <class T>
Rows<T> rows_of(std::int64_t m) {
  return [&]<std::size_t... M>(std::index_sequence<M...>) {
    constexpr std::array<Rows<T>, sizeof...(M)> table = {rows<M + 1, T>...};
    return table[static_cast<std::size_t>(m - 1)];
  }
  (std::make_index_sequence<static_cast<std::size_t>(kFewRows)>());
}

struct Places {
  std::size_t tiles = 0, bytes = 0;  // bias in f32, then a tile of sums per worker

  explicit Places(const ir::KernelSpec& spec) {
    const MatmulProblem p = matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes);
    const TensorType& b = spec.inputs[2];
    if (b.present && b.dtype != DType::f32) tiles = (static_cast<std::size_t>(p.n) * sizeof(float) + 63) / 64 * 64;
    bytes = tiles + static_cast<std::size_t>(p.m * kColumns * spec.threads) * sizeof(float);
  }
};

}  // namespace

bool takes_few_rows(const MatmulProblem& p) { return p.m >= 1 && p.m <= kFewRows && !p.trans_a && p.trans_b; }

std::size_t few_rows_workspace(const ir::KernelSpec& spec) { return Places(spec).bytes; }

std::shared_ptr<device::Kernel> prepare_few_rows(const ir::KernelSpec& spec) {
  const MatmulProblem p = matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes);
  const Places places(spec);
  const DType bias_type = spec.inputs[2].dtype;
  const std::size_t aux_bytes = size_of(spec.inputs[3].dtype);
  const std::size_t y_bytes = size_of(spec.outputs[0].dtype);
  const Epilogue epilogue = matmul_epilogue(spec);
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=, threads = spec.threads, multiply = rows_of<T>(p.m)](const device::Launch& launch) {
      TRI_CHECK(launch.pool->threads() <= threads, "prepared for {} threads", threads);
      auto* const workspace = static_cast<std::byte*>(launch.workspace);
      const float* bias = launch.in<float>(2);
      if (bias != nullptr && bias_type != DType::f32) {
        auto* const wide = reinterpret_cast<float*>(workspace);
        dispatch_compute(bias_type, [&]<class B>(B) {
          simd::map(
              p.n, wide, [](simd::Vec v) { return v; }, launch.in<B>(2));
        });
        bias = wide;
      }
      launch.pool->run_with_worker((p.n + kColumns - 1) / kColumns, [&](std::int64_t task, int worker) {
        const std::int64_t column = task * kColumns;
        const auto offset = static_cast<std::size_t>(column);
        EpilogueTile e;
        e.rows = p.m;
        e.columns = std::min(kColumns, p.n - column);
        auto* const sums = reinterpret_cast<float*>(workspace + places.tiles) + worker * p.m * kColumns;
        multiply(launch.in<T>(0), launch.in<T>(1) + column * p.k, e.columns, p.k, sums);
        e.sums = sums;
        e.ld_sums = e.columns;
        if (bias != nullptr) e.bias = bias + column;
        if (launch.inputs[3] != nullptr) e.aux = launch.in<std::byte>(3) + offset * aux_bytes;
        if (launch.outputs.size() > 1) e.pre = launch.out<std::byte>(1) + offset * y_bytes;
        e.y = launch.out<std::byte>(0) + offset * y_bytes;
        e.ld = p.n;
        epilogue(e);
      });
    });
  });
}

}  // namespace trireme::ops
