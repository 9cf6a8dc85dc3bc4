#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "trireme/device/cpu/onednn.h"
#include "trireme/ops/define.h"
#include "trireme/ops/matmul/epilogue.h"
#include "trireme/ops/matmul/problem.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

using device::cpu::Gemm;
using device::cpu::GemmSpec;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Equal parts of at most `most`, in multiples of `unit`.
std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t unit) {
  const std::int64_t parts = (extent + most - 1) / most;
  const std::int64_t part = (extent + parts - 1) / parts;
  return std::min(extent, (part + unit - 1) / unit * unit);
}

// The output cut into tiles that threads take in turn, from the problem's size alone. A tile's sums fit the
// second-level cache, where the epilogue finds them. Small problems get small tiles, columns first: gemm packs b once
// per tile, which more rows pay off.
struct Tiling {
  std::int64_t rows = 1, columns = 1;  // of a tile
  std::int64_t down = 0, across = 0;   // tiles

  Tiling(std::int64_t m, std::int64_t n) {
    if (m == 0 || n == 0) return;
    constexpr std::int64_t kEnough = 32;
    rows = even_part(m, 256, 16);
    columns = even_part(n, 512, 64);
    for (;;) {
      down = (m + rows - 1) / rows;
      across = (n + columns - 1) / columns;
      if (down * across >= kEnough) return;
      if (columns > 128)
        columns = even_part(n, std::max<std::int64_t>(columns / 2, 128), 64);
      else if (rows > 64)
        rows = even_part(m, std::max<std::int64_t>(rows / 2, 64), 16);
      else if (columns > 64)
        columns = 64;
      else
        return;
    }
  }
  std::int64_t tiles() const { return down * across; }
};

// Everything decided from the types: what is computed where, and the layout of the workspace.
struct Plan {
  MatmulProblem problem;
  Tiling tiling;
  DType dtype;  // of the operands as gemm reads them
  bool widen;   // f16 operands are brought to f32 first
  bool direct;  // gemm writes y itself and nothing is left to do
  bool staged;  // sums go to a tile of scratch; otherwise to y, where the epilogue works in place
  bool convert_bias;
  std::size_t bias_at = 0, a_at = 0, b_at = 0, workers_at = 0;
  std::size_t tile_bytes = 0, worker_bytes = 0;
  std::size_t bytes = 0;

  explicit Plan(const ir::KernelSpec& spec)
      : problem(matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes)), tiling(problem.m, problem.n) {
    const TensorType& y = spec.outputs[0];
    const TensorType& bias = spec.inputs[2];
    widen = spec.inputs[0].dtype == DType::f16;
    dtype = widen ? DType::f32 : spec.inputs[0].dtype;
    const bool plain = !bias.present && !spec.inputs[3].present && spec.attributes.text("activation") == "none" &&
                       !spec.attributes.boolean("save_pre");
    // A bf16 result cannot hold the partial sums of a long weight gradient.
    direct = plain && (y.dtype == DType::f32 ||
                       (y.dtype == DType::bf16 && dtype == DType::bf16 && !spec.accumulate && !problem.trans_a));
    // aux may be y's own buffer, so nothing is written there before it is read.
    staged = !direct && (y.dtype != DType::f32 || spec.accumulate || spec.inputs[3].present);
    convert_bias = bias.present && bias.dtype != DType::f32;

    const auto take = [this](std::size_t size) {
      const std::size_t at = bytes;
      bytes += aligned(size);
      return at;
    };
    if (convert_bias) bias_at = take(static_cast<std::size_t>(problem.n) * sizeof(float));
    if (widen) {
      a_at = take(static_cast<std::size_t>(spec.inputs[0].elements()) * sizeof(float));
      b_at = take(static_cast<std::size_t>(spec.inputs[1].elements()) * sizeof(float));
    }
    std::size_t scratch = 0;
    for_shapes([&](std::int64_t rows, std::int64_t columns, std::size_t) {
      scratch = std::max(scratch, aligned(Gemm::scratch_bytes(gemm(rows, columns, spec))));
    });
    if (staged) tile_bytes = aligned(static_cast<std::size_t>(tiling.rows * tiling.columns) * sizeof(float));
    worker_bytes = tile_bytes + scratch;
    workers_at = take(worker_bytes * static_cast<std::size_t>(spec.threads));
  }

  GemmSpec gemm(std::int64_t rows, std::int64_t columns, const ir::KernelSpec& spec) const {
    GemmSpec g;
    g.m = rows;
    g.n = columns;
    g.k = problem.k;
    g.trans_a = problem.trans_a;
    g.trans_b = problem.trans_b;
    g.lda = problem.lda();
    g.ldb = problem.ldb();
    g.ldc = staged ? tiling.columns : problem.n;
    g.input = dtype;
    g.output = direct ? spec.outputs[0].dtype : DType::f32;
    g.accumulate = direct && spec.accumulate;
    return g;
  }

  // Calls f(rows, columns, index) for the shapes of tiles that occur: inner ones (0), and those at the two edges.
  template <class F>
  void for_shapes(F&& f) const {
    if (tiling.tiles() == 0) return;
    const std::int64_t last_rows = problem.m - (tiling.down - 1) * tiling.rows;
    const std::int64_t last_columns = problem.n - (tiling.across - 1) * tiling.columns;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t rows = (i & 1) != 0 ? last_rows : tiling.rows;
      const std::int64_t columns = (i & 2) != 0 ? last_columns : tiling.columns;
      const bool same = ((i & 1) != 0 && rows == tiling.rows) || ((i & 2) != 0 && columns == tiling.columns);
      if (!same) f(rows, columns, i);
    }
  }
};

class MatmulKernel final : public device::Kernel {
 public:
  explicit MatmulKernel(const ir::KernelSpec& spec)
      : plan_(spec),
        threads_(spec.threads),
        y_bytes_(size_of(spec.outputs[0].dtype)),
        aux_bytes_(size_of(spec.inputs[3].dtype)),
        bias_type_(spec.inputs[2].dtype) {
    plan_.for_shapes([&](std::int64_t rows, std::int64_t columns, std::size_t index) {
      gemms_[index].emplace(plan_.gemm(rows, columns, spec), spec.threads);
    });
    if (!plan_.direct) epilogue_ = matmul_epilogue(spec);
    if (plan_.widen) {
      a_elements_ = spec.inputs[0].elements();
      b_elements_ = spec.inputs[1].elements();
    }
  }

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const MatmulProblem& p = plan_.problem;
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    const auto* a = launch.in<std::byte>(0);
    const auto* b = launch.in<std::byte>(1);
    if (plan_.widen) {
      a = widen(launch, 0, a_elements_, workspace + plan_.a_at);
      b = widen(launch, 1, b_elements_, workspace + plan_.b_at);
    }
    const float* bias = launch.in<float>(2);
    if (plan_.convert_bias) {
      auto* const converted = reinterpret_cast<float*>(workspace + plan_.bias_at);
      dispatch_compute(bias_type_, [&]<class T>(T) {
        simd::map(
            p.n, converted, [](simd::Vec v) { return v; }, launch.in<T>(2));
      });
      bias = converted;
    }

    const Tiling& t = plan_.tiling;
    const std::size_t element = size_of(plan_.dtype);
    launch.pool->run_with_worker(t.tiles(), [&](std::int64_t tile, int worker) {
      const std::int64_t i = tile / t.across;
      const std::int64_t j = tile % t.across;
      const std::int64_t row = i * t.rows;
      const std::int64_t column = j * t.columns;
      const std::int64_t rows = std::min(t.rows, p.m - row);
      const std::int64_t columns = std::min(t.columns, p.n - column);
      const std::size_t shape = (rows != t.rows ? 1U : 0U) | (columns != t.columns ? 2U : 0U);
      auto* const own = workspace + plan_.workers_at + plan_.worker_bytes * static_cast<std::size_t>(worker);

      const std::int64_t at = row * p.n + column;
      std::byte* const y = launch.out<std::byte>(0) + static_cast<std::size_t>(at) * y_bytes_;
      std::byte* const sums = plan_.staged ? own : y;
      const std::int64_t a_offset = p.trans_a ? row : row * p.k;
      const std::int64_t b_offset = p.trans_b ? column * p.k : column;
      gemms_[shape]->run(worker, a + static_cast<std::size_t>(a_offset) * element,
                         b + static_cast<std::size_t>(b_offset) * element, sums, own + plan_.tile_bytes);
      if (epilogue_ == nullptr) return;

      EpilogueTile e;
      e.sums = reinterpret_cast<const float*>(sums);
      e.ld_sums = plan_.staged ? t.columns : p.n;
      e.rows = rows;
      e.columns = columns;
      if (bias != nullptr) e.bias = bias + column;
      if (launch.inputs[3] != nullptr) e.aux = launch.in<std::byte>(3) + static_cast<std::size_t>(at) * aux_bytes_;
      if (launch.outputs.size() > 1) e.pre = launch.out<std::byte>(1) + static_cast<std::size_t>(at) * y_bytes_;
      e.y = y;
      e.ld = p.n;
      epilogue_(e);
    });
  }

 private:
  static const std::byte* widen(const device::Launch& launch, std::size_t input, std::int64_t n, std::byte* to) {
    auto* const wide = reinterpret_cast<float*>(to);
    launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
      simd::map(
          end - begin, wide + begin, [](simd::Vec v) { return v; }, launch.in<Float16>(input) + begin);
    });
    return to;
  }

  Plan plan_;
  int threads_;
  std::size_t y_bytes_, aux_bytes_;
  DType bias_type_;
  std::int64_t a_elements_ = 0, b_elements_ = 0;
  std::array<std::optional<Gemm>, 4> gemms_;
  Epilogue epilogue_ = nullptr;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_matmul_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<MatmulKernel>(spec);
}

std::size_t matmul_cpu_workspace(const ir::KernelSpec& spec) { return Plan(spec).bytes; }

}  // namespace trireme::ops
