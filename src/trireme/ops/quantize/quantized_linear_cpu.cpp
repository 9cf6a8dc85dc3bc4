#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trireme/device/cpu/onednn.h"
#include "trireme/ops/define.h"
#include "trireme/ops/embedding/embedding.h"
#include "trireme/ops/quantize/code_vectors.h"
#include "trireme/ops/quantize/quantized_linear.h"

namespace trireme::ops {
namespace {

using device::cpu::Gemm;
using device::cpu::GemmSpec;
using simd::Vec;

constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kColumns = 64;  // of a task

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// One row of codes and its scales.
struct CodeRow {
  const std::byte* codes;
  const float* scales;
};

HWY_INLINE Vec joined(const std::array<Vec, 4>& sum) {
  return simd::hn::Add(simd::hn::Add(sum[0], sum[1]), simd::hn::Add(sum[2], sum[3]));
}

// M rows of x by one row of codes. Each product has the same sums whatever M is.
template <std::size_t M, int Bits>
HWY_INLINE void dot(const float* x, const CodeRow& row, std::int64_t k, std::int64_t group, float* y, std::int64_t ld) {
  std::array<std::array<Vec, 4>, M> sum;
  const auto add = [&](std::int64_t at, std::int64_t count, Vec codes, std::size_t slot) HWY_ATTR {
    for (std::size_t i = 0; i < M; ++i)
      sum[i][slot] =
          simd::hn::MulAdd(simd::load_n(x + static_cast<std::int64_t>(i) * k + at, count), codes, sum[i][slot]);
  };
  const auto clear = [&]() HWY_ATTR {
    for (auto& s : sum) s.fill(simd::zero());
  };
  clear();
  if (group == k) {
    simd::for_codes<Bits>(row.codes, 0, k, add);
    for (std::size_t i = 0; i < M; ++i)
      y[static_cast<std::int64_t>(i) * ld] = simd::sum(joined(sum[i])) * row.scales[0];
    return;
  }
  std::array<Vec, M> total;
  total.fill(simd::zero());
  for (std::int64_t g = 0; g * group < k; ++g) {
    simd::for_codes<Bits>(row.codes, g * group, (g + 1) * group, add);
    for (std::size_t i = 0; i < M; ++i) total[i] = simd::hn::MulAdd(joined(sum[i]), simd::set(row.scales[g]), total[i]);
    clear();
  }
  for (std::size_t i = 0; i < M; ++i) y[static_cast<std::int64_t>(i) * ld] = simd::sum(total[i]);
}

// Rows of codes are read one after another, as they lie in memory.
template <std::size_t M, int Bits>
void few_rows(const float* x, const std::byte* codes, const float* scales, const QuantizedProblem& p,
              std::int64_t columns, float* y, std::int64_t ld) {
  constexpr std::size_t kTogether = std::min<std::size_t>(M, 4);  // as many sums as fit the registers
  const std::int64_t group = p.format.group_of(p.k), groups = p.format.groups(p.k), bytes = p.format.row_bytes(p.k);
  for (std::int64_t j = 0; j < columns; ++j) {
    const CodeRow row{codes + j * bytes, scales + j * groups};
    dot<kTogether, Bits>(x, row, p.k, group, y + j, ld);
    if constexpr (M > kTogether)
      dot<M - kTogether, Bits>(x + static_cast<std::int64_t>(kTogether) * p.k, row, p.k, group,
                               y + static_cast<std::int64_t>(kTogether) * ld + j, ld);
  }
}

using FewRows = decltype(&few_rows<1, 8>);

template <int Bits>
FewRows few_rows_of(std::int64_t m) {
  return [&]<std::size_t... M>(std::index_sequence<M...>) {
    constexpr std::array<FewRows, sizeof...(M)> table = {few_rows<M + 1, Bits>...};
    return table[static_cast<std::size_t>(m - 1)];
  }
  (std::make_index_sequence<static_cast<std::size_t>(kFewRows)>());
}

template <int Bits, class T>
void expand(const CodeRow& row, std::int64_t k, std::int64_t group, T* out) {
  for (std::int64_t g = 0; g * group < k; ++g) {
    const Vec scale = simd::set(row.scales[g]);
    simd::for_codes<Bits>(row.codes, g * group, (g + 1) * group,
                          [&](std::int64_t at, std::int64_t count, Vec codes, std::size_t)
                              HWY_ATTR { simd::store_n(codes * scale, out + at, count); });
  }
}

template <class T>
void expand(const CodeFormat& format, const CodeRow& row, std::int64_t k, T* out) {
  if (format.bits == 8)
    expand<8>(row, k, format.group_of(k), out);
  else
    expand<4>(row, k, format.group_of(k), out);
}

// x in f32; then for each worker a tile of sums and, for many rows, the weight's tile in f32 and the product's scratch.
struct Places {
  bool few = false, widens = false;
  std::size_t workers = 0, sums = 0, weights = 0, scratch = 0, worker_bytes = 0, bytes = 0;

  Places(const ir::KernelSpec& spec, const QuantizedProblem& p) {
    few = p.m <= kFewRows;
    widens = spec.inputs[0].dtype != DType::f32;
    const auto floats = [](std::int64_t count) { return aligned(static_cast<std::size_t>(count) * sizeof(float)); };
    workers = widens ? floats(p.m * p.k) : 0;
    weights = floats(p.m * kColumns);
    scratch = weights + (few ? 0 : floats(kColumns * p.k));
    worker_bytes = scratch;
    if (!few)
      for (const std::int64_t columns : {std::min(kColumns, p.n), p.n % kColumns})
        if (columns > 0) worker_bytes = std::max(worker_bytes, scratch + Gemm::scratch_bytes(gemm(p, columns)));
    worker_bytes = aligned(worker_bytes);
    bytes = p.m * p.n == 0 ? 0 : workers + worker_bytes * static_cast<std::size_t>(spec.threads);
  }

  static GemmSpec gemm(const QuantizedProblem& p, std::int64_t columns) {
    GemmSpec g;
    g.m = p.m;
    g.n = columns;
    g.k = p.k;
    g.trans_b = true;
    g.lda = g.ldb = p.k;
    g.ldc = columns;
    return g;
  }
};

class QuantizedLinear final : public device::Kernel {
 public:
  explicit QuantizedLinear(const ir::KernelSpec& spec)
      : problem_(quantized_problem(spec.inputs, spec.attributes)),
        places_(spec, problem_),
        type_(spec.inputs[0].dtype),
        threads_(spec.threads) {
    if (problem_.m * problem_.n == 0) return;
    if (places_.few) {
      few_ = problem_.format.bits == 8 ? few_rows_of<8>(problem_.m) : few_rows_of<4>(problem_.m);
      return;
    }
    const std::int64_t inner = std::min(kColumns, problem_.n);
    gemm_.emplace(Places::gemm(problem_, inner), threads_);
    if (problem_.n > kColumns && problem_.n % kColumns != 0)
      last_.emplace(Places::gemm(problem_, problem_.n % kColumns), threads_);
  }

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const QuantizedProblem& p = problem_;
    if (p.m * p.n == 0) return;
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    const float* x = launch.in<float>(0);
    if (places_.widens) {
      auto* const wide = reinterpret_cast<float*>(workspace);
      dispatch_compute(type_, [&]<class T>(T) {
        launch.pool->ranges(p.m * p.k, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
          simd::map(
              end - begin, wide + begin, [](Vec v) { return v; }, launch.in<T>(0) + begin);
        });
      });
      x = wide;
    }
    launch.pool->run_with_worker((p.n + kColumns - 1) / kColumns, [&](std::int64_t task, int worker) {
      std::byte* own = workspace + places_.workers + places_.worker_bytes * static_cast<std::size_t>(worker);
      const std::int64_t column = task * kColumns, columns = std::min(kColumns, p.n - column);
      const std::byte* codes = launch.in<std::byte>(1) + column * p.format.row_bytes(p.k);
      const float* scales = launch.in<float>(2) + column * p.format.groups(p.k);
      auto* const sums = reinterpret_cast<float*>(own);
      if (places_.few) {
        few_(x, codes, scales, p, columns, sums, columns);
      } else {
        auto* const weights = reinterpret_cast<float*>(own + places_.weights);
        for (std::int64_t j = 0; j < columns; ++j)
          expand(p.format, {codes + j * p.format.row_bytes(p.k), scales + j * p.format.groups(p.k)}, p.k,
                 weights + j * p.k);
        const Gemm& gemm = columns == kColumns || !last_ ? *gemm_ : *last_;
        gemm.run(worker, x, weights, sums, own + places_.scratch);
      }
      finish(launch, sums, column, columns);
    });
  }

 private:
  // Adds the bias and stores the columns in y's type.
  void finish(const device::Launch& launch, const float* sums, std::int64_t column, std::int64_t columns) const {
    const float* bias = launch.in<float>(3);
    dispatch_compute(type_, [&]<class T>(T) {
      for (std::int64_t i = 0; i < problem_.m; ++i) {
        T* y = launch.out<T>(0) + i * problem_.n + column;
        if (bias == nullptr)
          simd::map(
              columns, y, [](Vec v) { return v; }, sums + i * columns);
        else
          simd::map(
              columns, y, [](Vec v, Vec b) { return v + b; }, sums + i * columns, bias + column);
      }
    });
  }

  QuantizedProblem problem_;
  Places places_;
  DType type_;
  int threads_;
  FewRows few_ = nullptr;
  std::optional<Gemm> gemm_, last_;
};

}  // namespace

std::size_t quantized_linear_cpu_workspace(const ir::KernelSpec& spec) {
  return Places(spec, quantized_problem(spec.inputs, spec.attributes)).bytes;
}

std::shared_ptr<device::Kernel> prepare_quantized_linear_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<QuantizedLinear>(spec);
}

std::shared_ptr<device::Kernel> prepare_quantized_embedding_cpu(const ir::KernelSpec& spec) {
  const CodeFormat format = code_format(spec.attributes);
  const std::int64_t tokens = spec.inputs[0].elements(), vocab = spec.inputs[1].shape[0];
  const std::int64_t width = spec.attributes.integer("width");
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const auto* token = launch.in<std::int32_t>(0);
      launch.pool->ranges(tokens, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          check_token(token[i], vocab, i);
          const CodeRow row{launch.in<std::byte>(1) + token[i] * format.row_bytes(width),
                            launch.in<float>(2) + token[i] * format.groups(width)};
          expand(format, row, width, launch.out<T>(0) + i * width);
        }
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_dequantize_rows_cpu(const ir::KernelSpec& spec) {
  const CodeFormat format = code_format(spec.attributes);
  const std::int64_t n = spec.inputs[0].shape[0], width = spec.attributes.integer("width");
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      launch.pool->ranges(n, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          expand(
              format,
              {launch.in<std::byte>(0) + i * format.row_bytes(width), launch.in<float>(1) + i * format.groups(width)},
              width, launch.out<T>(0) + i * width);
      });
    });
  });
}

}  // namespace trireme::ops
