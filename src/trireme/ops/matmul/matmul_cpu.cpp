#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "trireme/device/cpu/onednn.h"
#include "trireme/ops/define.h"
#include "trireme/ops/matmul/epilogue.h"
#include "trireme/ops/matmul/few_rows.h"
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

// The output cut into tiles that threads take in turn, from the problem's size alone. Tiles are whole rows where that
// gives enough of them: their sums are then dense in y already. They fit the second-level cache, where the epilogue
// finds them.
struct Tiling {
  std::int64_t rows = 1, columns = 1;  // of a tile
  std::int64_t down = 0, across = 0;   // tiles

  explicit Tiling(const MatmulProblem& p) {
    if (p.m == 0 || p.n == 0) return;
    constexpr std::int64_t kEnough = 32;
    // Narrow strips of a transposed a are slow to read.
    const std::int64_t least = p.trans_a ? 64 : 32;
    rows = even_part(p.m, 128, 16);
    columns = even_part(p.n, 2048, 64);
    for (;;) {
      down = (p.m + rows - 1) / rows;
      across = (p.n + columns - 1) / columns;
      if (down * across >= kEnough) return;
      if (rows > least)
        rows = even_part(p.m, std::max(rows / 2, least), 16);
      else if (columns > 64)
        columns = even_part(p.n, std::max<std::int64_t>(columns / 2, 64), 64);
      else
        return;
    }
  }
};

// Everything decided from the types: what is computed where, and the layout of the workspace.
//
//   for each panel of columns
//     for each panel of rows
//       for each slice of k
//         pack the slice and panel of b
//         for each tile of the two panels: gemm, and after the last slice the epilogue
//
// Panels bound the workspace. k is cut only for a transposed a, whose strips would otherwise run through all of memory.
struct Plan {
  static constexpr std::size_t kPanelBytes = std::size_t{4} << 20;

  MatmulProblem problem;
  Tiling tiling;
  DType dtype;  // of the operands as gemm reads them
  bool widen;   // f16 operands are brought to f32 first
  bool direct;  // gemm writes y itself and nothing is left to do
  bool staged;  // sums go to scratch; otherwise to y, where the epilogue works in place
  bool accumulate;
  bool convert_bias;
  std::int64_t slice = 0, slices = 0;
  std::int64_t panel_across = 0, panel_down = 0;  // tiles

  std::size_t bias_at = 0, a_at = 0, b_at = 0, packed_at = 0, sums_at = 0, workers_at = 0;
  std::size_t packed_bytes = 0;  // of one tile's columns
  std::size_t tile_bytes = 0, worker_bytes = 0;
  std::size_t bytes = 0;

  explicit Plan(const ir::KernelSpec& spec)
      : problem(matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes)), tiling(problem) {
    const TensorType& y = spec.outputs[0];
    const TensorType& bias = spec.inputs[2];
    const bool aux = spec.inputs[3].present;
    widen = spec.inputs[0].dtype == DType::f16;
    dtype = widen ? DType::f32 : spec.inputs[0].dtype;
    accumulate = spec.accumulate;
    convert_bias = bias.present && bias.dtype != DType::f32;
    slice = problem.trans_a ? even_part(problem.k, 512, 64) : problem.k;
    slices = (problem.k + slice - 1) / slice;

    const bool dense = tiling.across == 1;
    const bool plain =
        !bias.present && !aux && spec.attributes.text("activation") == "none" && !spec.attributes.boolean("save_pre");
    direct = plain && dense && (y.dtype == DType::f32 || (y.dtype == dtype && slices == 1 && !accumulate));
    // aux may be y's own buffer, so nothing is written there before it is read.
    staged = !direct && (!dense || y.dtype != DType::f32 || accumulate || aux);
    if (tiling.down == 0) return;

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
    packed_bytes = Gemm::packed_bytes(gemm({tiling.rows, tiling.columns, slice}, y.dtype));
    panel_across = std::clamp<std::int64_t>(static_cast<std::int64_t>(kPanelBytes / packed_bytes), 1, tiling.across);
    packed_at = take(packed_bytes * static_cast<std::size_t>(panel_across));

    // Sums of several slices live as long as the panel, others as long as the tile.
    panel_down = tiling.down;
    const std::size_t tile = aligned(static_cast<std::size_t>(tiling.rows * tiling.columns) * sizeof(float));
    if (staged && slices > 1) {
      panel_down = std::clamp<std::int64_t>(
          static_cast<std::int64_t>(kPanelBytes / (tile * static_cast<std::size_t>(panel_across))), 1, tiling.down);
      sums_at = take(tile * static_cast<std::size_t>(panel_across * panel_down));
    }
    if (staged) tile_bytes = tile;
    std::size_t scratch = 0;
    for_shapes([&](const TileShape& shape, std::size_t) {
      scratch = std::max(scratch, Gemm::scratch_bytes(gemm(shape, y.dtype)));
    });
    worker_bytes = scratch + (slices == 1 ? tile_bytes : 0);
    workers_at = take(worker_bytes * static_cast<std::size_t>(spec.threads));
  }

  struct TileShape {
    std::int64_t rows = 0, columns = 0, k = 0;
  };

  GemmSpec gemm(const TileShape& shape, DType output) const {
    GemmSpec g;
    g.m = shape.rows;
    g.n = shape.columns;
    g.k = shape.k;
    g.trans_a = problem.trans_a;
    g.trans_b = problem.trans_b;
    g.lda = problem.lda();
    g.ldb = problem.ldb();
    g.ldc = shape.columns;
    g.input = dtype;
    g.output = direct ? output : DType::f32;
    g.accumulate = slices > 1 || (direct && accumulate);
    g.packed_b = true;
    return g;
  }

  // Calls f(shape, index) for the shapes of tiles that occur: inner ones (0), and those at the edges in the order rows,
  // columns, k.
  template <class F>
  void for_shapes(F&& f) const {
    const TileShape inner{tiling.rows, tiling.columns, slice};
    const TileShape last{problem.m - (tiling.down - 1) * tiling.rows, problem.n - (tiling.across - 1) * tiling.columns,
                         problem.k - (slices - 1) * slice};
    for (std::size_t i = 0; i < 8; ++i) {
      TileShape shape = inner;
      if ((i & 1) != 0) shape.rows = last.rows;
      if ((i & 2) != 0) shape.columns = last.columns;
      if ((i & 4) != 0) shape.k = last.k;
      if (shape_index(shape) == i) f(shape, i);
    }
  }
  std::size_t shape_index(const TileShape& shape) const {
    return (shape.rows != tiling.rows ? 1U : 0U) | (shape.columns != tiling.columns ? 2U : 0U) |
           (shape.k != slice ? 4U : 0U);
  }
};

class MatmulKernel final : public device::Kernel {
 public:
  explicit MatmulKernel(const ir::KernelSpec& spec)
      : plan_(spec),
        threads_(spec.threads),
        y_bytes_(size_of(spec.outputs[0].dtype)),
        aux_bytes_(size_of(spec.inputs[3].dtype)),
        bias_type_(spec.inputs[2].dtype),
        a_elements_(spec.inputs[0].elements()),
        b_elements_(spec.inputs[1].elements()) {
    if (plan_.tiling.down == 0) return;
    plan_.for_shapes([&](const Plan::TileShape& shape, std::size_t index) {
      gemms_[index].emplace(plan_.gemm(shape, spec.outputs[0].dtype), spec.threads);
    });
    if (!plan_.direct) epilogue_ = matmul_epilogue(spec);
  }

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const Tiling& t = plan_.tiling;
    Operands operands;
    operands.workspace = static_cast<std::byte*>(launch.workspace);
    operands.a = launch.in<std::byte>(0);
    operands.b = launch.in<std::byte>(1);
    operands.bias = launch.in<float>(2);
    if (plan_.widen) {
      operands.a = widen(launch, 0, a_elements_, operands.workspace + plan_.a_at);
      operands.b = widen(launch, 1, b_elements_, operands.workspace + plan_.b_at);
    }
    if (plan_.convert_bias) {
      auto* const converted = reinterpret_cast<float*>(operands.workspace + plan_.bias_at);
      dispatch_compute(bias_type_, [&]<class T>(T) {
        simd::map(
            plan_.problem.n, converted, [](simd::Vec v) { return v; }, launch.in<T>(2));
      });
      operands.bias = converted;
    }
    for (std::int64_t left = 0; left < t.across; left += plan_.panel_across) {
      const std::int64_t across = std::min(plan_.panel_across, t.across - left);
      for (std::int64_t top = 0; top < t.down; top += plan_.panel_down) {
        const std::int64_t down = std::min(plan_.panel_down, t.down - top);
        for (std::int64_t s = 0; s < plan_.slices; ++s) {
          pack(launch, operands, left, across, s);
          launch.pool->run_with_worker(down * across, [&](std::int64_t i, int worker) {
            run_tile(launch, operands, {top + i / across, left + i % across, i, i % across, s}, worker);
          });
        }
      }
    }
  }

 private:
  struct Operands {
    std::byte* workspace = nullptr;
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const float* bias = nullptr;
  };
  struct Tile {
    std::int64_t i = 0, j = 0;              // in the whole
    std::int64_t in_panel = 0, packed = 0;  // index of its sums and of its columns of b
    std::int64_t s = 0;
  };

  Plan::TileShape shape_of(std::int64_t i, std::int64_t j, std::int64_t s) const {
    const Tiling& t = plan_.tiling;
    const MatmulProblem& p = plan_.problem;
    return {std::min(t.rows, p.m - i * t.rows), std::min(t.columns, p.n - j * t.columns),
            std::min(plan_.slice, p.k - s * plan_.slice)};
  }

  void pack(const device::Launch& launch, const Operands& operands, std::int64_t left, std::int64_t across,
            std::int64_t s) const {
    const MatmulProblem& p = plan_.problem;
    const std::int64_t parts = gemms_[plan_.shape_index(shape_of(0, 0, s))]->parts();
    launch.pool->run_with_worker(across * parts, [&](std::int64_t task, int worker) {
      const std::int64_t j = task / parts;
      const std::int64_t column = (left + j) * plan_.tiling.columns;
      const std::int64_t k = s * plan_.slice;
      const std::int64_t offset = p.trans_b ? column * p.k + k : k * p.n + column;
      gemms_[plan_.shape_index(shape_of(0, left + j, s))]->pack(
          worker, task % parts, operands.b + static_cast<std::size_t>(offset) * size_of(plan_.dtype),
          operands.workspace + plan_.packed_at + plan_.packed_bytes * static_cast<std::size_t>(j));
    });
  }

  void run_tile(const device::Launch& launch, const Operands& operands, const Tile& tile, int worker) const {
    const MatmulProblem& p = plan_.problem;
    const Plan::TileShape shape = shape_of(tile.i, tile.j, tile.s);
    const std::int64_t row = tile.i * plan_.tiling.rows;
    const std::int64_t column = tile.j * plan_.tiling.columns;
    const std::int64_t at = row * p.n + column;
    std::byte* const y = launch.out<std::byte>(0) + static_cast<std::size_t>(at) * y_bytes_;
    std::byte* own = operands.workspace + plan_.workers_at + plan_.worker_bytes * static_cast<std::size_t>(worker);
    std::byte* sums = y;
    if (plan_.staged && plan_.slices > 1) {
      sums = operands.workspace + plan_.sums_at + plan_.tile_bytes * static_cast<std::size_t>(tile.in_panel);
    } else if (plan_.staged) {
      sums = own;
      own += plan_.tile_bytes;
    }
    if (plan_.slices > 1 && tile.s == 0 && (plan_.staged || !plan_.accumulate))
      std::memset(sums, 0, static_cast<std::size_t>(shape.rows * shape.columns) * sizeof(float));

    const std::int64_t k = tile.s * plan_.slice;
    const std::int64_t a_offset = p.trans_a ? k * p.m + row : row * p.k + k;
    gemms_[plan_.shape_index(shape)]->run(
        worker, operands.a + static_cast<std::size_t>(a_offset) * size_of(plan_.dtype),
        operands.workspace + plan_.packed_at + plan_.packed_bytes * static_cast<std::size_t>(tile.packed), sums, own);
    if (epilogue_ == nullptr || tile.s + 1 < plan_.slices) return;

    EpilogueTile e;
    e.sums = reinterpret_cast<const float*>(sums);
    e.ld_sums = shape.columns;
    e.rows = shape.rows;
    e.columns = shape.columns;
    if (operands.bias != nullptr) e.bias = operands.bias + column;
    if (launch.inputs[3] != nullptr) e.aux = launch.in<std::byte>(3) + static_cast<std::size_t>(at) * aux_bytes_;
    if (launch.outputs.size() > 1) e.pre = launch.out<std::byte>(1) + static_cast<std::size_t>(at) * y_bytes_;
    e.y = y;
    e.ld = p.n;
    epilogue_(e);
  }

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
  std::int64_t a_elements_, b_elements_;
  std::array<std::optional<Gemm>, 8> gemms_;  // by Plan::shape_index
  Epilogue epilogue_ = nullptr;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_matmul_cpu(const ir::KernelSpec& spec) {
  if (takes_few_rows(matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes))) return prepare_few_rows(spec);
  return std::make_shared<MatmulKernel>(spec);
}

std::size_t matmul_cpu_workspace(const ir::KernelSpec& spec) {
  if (takes_few_rows(matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes))) return few_rows_workspace(spec);
  return Plan(spec).bytes;
}

}  // namespace trireme::ops
