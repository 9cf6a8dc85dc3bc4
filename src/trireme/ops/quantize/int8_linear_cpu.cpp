#include <algorithm>
#include <cmath>

#include "trireme/ops/define.h"
#include "trireme/ops/quantize/int8_dot.h"
#include "trireme/ops/quantize/int8_linear.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;
using simd::Vec;

constexpr std::int64_t kTaskColumns = 64;
constexpr std::size_t kTile = 4;  // rows and columns whose sums are in registers together

constexpr std::size_t to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// A row of 4-bit codes as signed bytes.
void widen_codes(const std::byte* row, std::int64_t k, std::int8_t* out) {
  constexpr std::int64_t kHalf = kPackedCodes / 2;
  const hn::FixedTag<std::uint8_t, kHalf> tag;
  const hn::RebindToSigned<decltype(tag)> signed_tag;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
  for (std::int64_t at = 0; at < k; at += kPackedCodes, bytes += kHalf) {
    const auto both = hn::LoadU(tag, bytes);
    const auto low = hn::And(both, hn::Set(tag, 15));
    const auto high =
        hn::And(hn::BitCast(tag, hn::ShiftRight<4>(hn::BitCast(hn::RepartitionToWide<decltype(tag)>(), both))),
                hn::Set(tag, 15));
    hn::StoreU(hn::Sub(hn::BitCast(signed_tag, low), hn::Set(signed_tag, 8)), signed_tag, out + at);
    hn::StoreU(hn::Sub(hn::BitCast(signed_tag, high), hn::Set(signed_tag, 8)), signed_tag, out + at + kHalf);
  }
}

// What a task needs: a tile of sums and, for codes of 4 bits, a few rows of them as bytes.
struct Int8Places {
  std::size_t codes = 0, worker_bytes = 0, bytes = 0;

  Int8Places(const ir::KernelSpec& spec, const QuantizedProblem& p) {
    codes = to_line(static_cast<std::size_t>(p.m * kTaskColumns) * sizeof(float));
    worker_bytes = codes + (p.format.bits == 4 ? to_line(kTile * static_cast<std::size_t>(p.k)) : 0);
    bytes = p.m * p.n == 0 ? 0 : worker_bytes * static_cast<std::size_t>(spec.threads);
  }
};

// M rows of x by N rows of codes as bytes: y = Σ over groups of sums · scale · x_scale.
template <std::size_t M, std::size_t N>
void multiply_tile(const QuantizedProblem& p, const std::int8_t* x, const std::int8_t* w, const float* scales,
                   float x_scale, float* y, std::int64_t y_row) {
  const std::int64_t group = p.format.group_of(p.k), groups = p.format.groups(p.k);
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto sums = simd::dot_bytes<M, N>(x + g * group, p.k, w + g * group, p.k, group);
    for (std::size_t i = 0; i < M; ++i)
      for (std::size_t j = 0; j < N; ++j) {
        float& out = y[static_cast<std::int64_t>(i) * y_row + static_cast<std::int64_t>(j)];
        const float part =
            static_cast<float>(sums[i][j]) * (scales[static_cast<std::int64_t>(j) * groups + g] * x_scale);
        out = g == 0 ? part : out + part;
      }
  }
}

// All rows of x by N rows of codes.
template <std::size_t N>
void multiply_columns(const QuantizedProblem& p, const std::int8_t* x, const std::int8_t* w, const float* scales,
                      float x_scale, float* y, std::int64_t y_row) {
  constexpr auto kRows = static_cast<std::int64_t>(kTile);
  std::int64_t i = 0;
  for (; i + kRows <= p.m; i += kRows)
    multiply_tile<kTile, N>(p, x + i * p.k, w, scales, x_scale, y + i * y_row, y_row);
  const std::int8_t* const rest = x + i * p.k;
  float* const out = y + i * y_row;
  switch (p.m - i) {
    case 3: return multiply_tile<3, N>(p, rest, w, scales, x_scale, out, y_row);
    case 2: return multiply_tile<2, N>(p, rest, w, scales, x_scale, out, y_row);
    case 1: return multiply_tile<1, N>(p, rest, w, scales, x_scale, out, y_row);
    default: return;
  }
}

class Int8Linear final : public device::Kernel {
 public:
  explicit Int8Linear(const ir::KernelSpec& spec)
      : problem_(quantized_problem(spec.inputs, spec.attributes)),
        places_(spec, problem_),
        type_(spec.outputs[0].dtype),
        threads_(spec.threads) {}

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const QuantizedProblem& p = problem_;
    if (p.m * p.n == 0) return;
    const float x_scale = *launch.in<float>(3);
    launch.pool->run_with_worker((p.n + kTaskColumns - 1) / kTaskColumns, [&](std::int64_t task, int worker) {
      std::byte* own =
          static_cast<std::byte*>(launch.workspace) + places_.worker_bytes * static_cast<std::size_t>(worker);
      auto* const sums = reinterpret_cast<float*>(own);
      auto* const wide = reinterpret_cast<std::int8_t*>(own + places_.codes);
      const std::int64_t first = task * kTaskColumns, columns = std::min(kTaskColumns, p.n - first);
      constexpr auto kTogether = static_cast<std::int64_t>(kTile);
      for (std::int64_t j = 0; j < columns; j += columns - j >= kTogether ? kTogether : 1) {
        const bool whole = columns - j >= kTogether;
        const std::byte* codes = launch.in<std::byte>(1) + (first + j) * p.format.row_bytes(p.k);
        const std::int8_t* w = reinterpret_cast<const std::int8_t*>(codes);
        if (p.format.bits == 4) {
          for (std::int64_t r = 0; r < (whole ? kTogether : 1); ++r)
            widen_codes(codes + r * p.format.row_bytes(p.k), p.k, wide + r * p.k);
          w = wide;
        }
        const float* scales = launch.in<float>(2) + (first + j) * p.format.groups(p.k);
        const auto multiply = whole ? multiply_columns<kTile> : multiply_columns<1>;
        multiply(p, launch.in<std::int8_t>(0), w, scales, x_scale, sums + j, columns);
      }
      store(launch, sums, first, columns);
    });
  }

 private:
  // Adds the bias and stores the columns in y's type.
  void store(const device::Launch& launch, const float* sums, std::int64_t first, std::int64_t columns) const {
    const float* bias = launch.in<float>(4);
    dispatch_compute(type_, [&]<class T>(T) {
      for (std::int64_t i = 0; i < problem_.m; ++i) {
        T* y = launch.out<T>(0) + i * problem_.n + first;
        if (bias == nullptr)
          simd::map(
              columns, y, [](Vec v) { return v; }, sums + i * columns);
        else
          simd::map(
              columns, y, [](Vec v, Vec b) { return v + b; }, sums + i * columns, bias + first);
      }
    });
  }

  QuantizedProblem problem_;
  Int8Places places_;
  DType type_;
  int threads_;
};

}  // namespace

std::size_t int8_linear_cpu_workspace(const ir::KernelSpec& spec) {
  return Int8Places(spec, quantized_problem(spec.inputs, spec.attributes)).bytes;
}

std::shared_ptr<device::Kernel> prepare_int8_linear_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<Int8Linear>(spec);
}

std::shared_ptr<device::Kernel> prepare_round_to_int8_cpu(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.inputs[0].elements();
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n](const device::Launch& launch) {
      const T* x = launch.in<T>(0);
      auto* const q = launch.out<std::int8_t>(0);
      const float scale = *launch.in<float>(1);
      const Vec inverse = simd::set(scale > 0 ? 1.0F / scale : 0.0F), most = simd::set(127.0F);
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        constexpr simd::hn::Rebind<std::int8_t, simd::Tag> bytes;
        simd::for_vectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          const Vec code = simd::hn::Round(simd::load_n(x + begin + i, count) * inverse);
          const Vec held = simd::hn::Max(simd::hn::Min(code, most), simd::hn::Neg(most));
          const auto narrow = simd::hn::DemoteTo(bytes, simd::hn::ConvertTo(simd::detail::IntTag{}, held));
          if (count == simd::kLanes) {
            simd::hn::StoreU(narrow, bytes, q + begin + i);
            return;
          }
          std::int8_t last[static_cast<std::size_t>(simd::kLanes)];
          simd::hn::StoreU(narrow, bytes, last);
          std::copy_n(last, count, q + begin + i);
        });
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_largest_magnitude_cpu(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.inputs[0].elements();
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n](const device::Launch& launch) {
      const T* x = launch.in<T>(0);
      float largest = *launch.in<float>(1);
      for (std::int64_t i = 0; i < n && !std::isnan(largest); ++i) {
        const float magnitude = std::abs(static_cast<float>(x[i]));
        if (!(magnitude <= largest)) largest = magnitude;  // a NaN too, which stays
      }
      *launch.out<float>(0) = largest;
    });
  });
}

}  // namespace trireme::ops
