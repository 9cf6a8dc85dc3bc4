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

// M rows of a by one row of b. Each product has the same sums whatever M is, so a row's result does not depend on how
// many come with it.
template <std::size_t M, class T>
HWY_INLINE void dot(const T* a, const T* b, std::int64_t n, std::int64_t k, float* sums) {
  constexpr std::size_t kSums = 4;
  std::array<std::array<simd::Vec, kSums>, M> sum;
  for (auto& row : sum) row.fill(simd::zero());
  const auto add = [&](std::int64_t at, std::int64_t count, std::size_t q) HWY_ATTR {
    const simd::Vec right = simd::load_n(b + at, count);
    for (std::size_t i = 0; i < M; ++i)
      sum[i][q] = simd::hn::MulAdd(simd::load_n(a + static_cast<std::int64_t>(i) * k + at, count), right, sum[i][q]);
  };
  constexpr std::int64_t kStep = kSums * simd::kLanes;
  std::int64_t at = 0;
  for (; at + kStep <= k; at += kStep)
    for (std::size_t q = 0; q < kSums; ++q) add(at + static_cast<std::int64_t>(q) * simd::kLanes, simd::kLanes, q);
  for (std::size_t q = 0; at < k; at += simd::kLanes, ++q) add(at, std::min<std::int64_t>(simd::kLanes, k - at), q);
  for (std::size_t i = 0; i < M; ++i)
    sums[static_cast<std::int64_t>(i) * n] =
        simd::sum(simd::hn::Add(simd::hn::Add(sum[i][0], sum[i][1]), simd::hn::Add(sum[i][2], sum[i][3])));
}

// Rows of b are read one after another, as they lie in memory: several at once, which would load a less often, are as
// many streams that begin anew every few kilobytes, and memory delivers half as much.
template <std::size_t M, class T>
void rows(const T* a, const T* b, std::int64_t n, std::int64_t k, float* sums) {
  constexpr std::size_t kTogether = std::min<std::size_t>(M, 4);  // as many sums as fit the registers
  for (std::int64_t j = 0; j < n; ++j) {
    dot<kTogether>(a, b + j * k, n, k, sums + j);
    if constexpr (M > kTogether)
      dot<M - kTogether>(a + static_cast<std::int64_t>(kTogether) * k, b + j * k, n, k,
                         sums + static_cast<std::int64_t>(kTogether) * n + j);
  }
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

double busiest_share(std::int64_t columns, int threads) {
  const std::int64_t tasks = (columns + kColumns - 1) / kColumns;
  const std::int64_t most = (tasks + threads - 1) / threads * kColumns;
  return static_cast<double>(std::min(columns, most)) / static_cast<double>(std::max<std::int64_t>(1, columns));
}

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
