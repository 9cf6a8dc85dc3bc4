#include <algorithm>

#include "trireme/ops/cuda/activation.h"
#include "trireme/ops/cuda/hopper_cluster.cuh"
#include "trireme/ops/matmul/gated_hopper.h"

// A matrix product whose results are finished by threads of their own while the next ones are computed.
//
//   warp 0 of warpgroup 0        fetches 128 rows of a and half of the 256 columns of b, 64 of the summed dimension at
//   a
//                                time, three ahead; the other half of b comes from the other block of the cluster
//   warpgroups 1 and 2           multiply: 64 rows and 256 columns each, in registers; then round the sums to 16 bits
//                                and leave them in shared memory
//   warps 1 to 3 of warpgroup 0  take them from there: swiglu or its gradient, to memory
//
// A block stays on its processor and takes one tile of the result after another.
namespace trireme::ops::cuda {
namespace {

using namespace hopper;

constexpr int kRows = 128, kColumns = 256, kDepth = 64, kStages = 3;
constexpr int kThreads = 384, kMultiplying = 256, kFinishing = 96, kWarps = kMultiplying / 32;
constexpr int kBoxBytes = kDepth * 64 * 2;  // of b where the summed dimension runs across its rows

struct alignas(1024) Shared {
  struct {
    std::uint8_t a[kRows * kDepth * 2], b[kColumns * kDepth * 2];
  } stages[kStages];
  // 128 rows of 512 bytes, the 16-byte pieces of row r permuted by xor with r mod 8.
  std::uint8_t sums[kRows * kColumns * 2];
  Barrier full[kStages], empty[kStages], made, taken;
};
constexpr int kStageBytes = sizeof(Shared::stages) / kStages;

struct Work {
  CUtensorMap a, b, other;  // forward: b is the gate's weight, `other` that of up
  const void *gate, *up;    // of the gradient
  void *first, *second, *third;
  int m, n, k;
  int pairs, tile_columns;  // tiles of the result, two below each other taken by a cluster
};

// Tiles are taken in blocks of eight pairs, so that those that are computed at once share what they read.
struct Tile {
  int row, column;
  __device__ Tile(const Work& w, int number, int rank, int columns) {
    constexpr int kTogether = 8;
    const int of_group = kTogether * w.tile_columns, group = number / of_group, first = group * kTogether;
    const int pairs = min(kTogether, w.pairs - first), in_group = number - group * of_group;
    row = (2 * (first + in_group % pairs) + rank) * kRows;
    column = in_group / pairs * columns;
  }
};

struct Eight {
  unsigned words[4];
};
__device__ __forceinline__ Eight read(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void write(void* p, const Eight& e) {
  *static_cast<uint4*>(p) = make_uint4(e.words[0], e.words[1], e.words[2], e.words[3]);
}

// The piece of a row of sums.
__device__ __forceinline__ void* piece(Shared& s, int row, int at) {
  return s.sums + row * (kColumns * 2) + (at ^ row % 8) * 16;
}

template <class T>
__device__ __forceinline__ void finish_forward(const Work& w, Shared& s, const Tile& tile, int warp, int lane) {
  using Silu = SiluOf<true>;
  const int at = lane % 16, column = tile.column + 8 * at;
#pragma unroll 2
  for (int row = 2 * warp + lane / 16; row < kRows; row += 6) {
    const Eight gate = read(piece(s, row, at)), up = read(piece(s, row, at + 16));
    Eight y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto value = [&](bool upper) {
        return Silu::value(half_of<T>(gate.words[i], upper)) * half_of<T>(up.words[i], upper);
      };
      y.words[i] = pair<T>(value(false), value(true));
    }
    if (tile.row + row >= w.m || column >= w.n) continue;
    const std::int64_t place = static_cast<std::int64_t>(tile.row + row) * w.n + column;
    write(static_cast<T*>(w.first) + place, y);
    write(static_cast<T*>(w.second) + place, gate);
    write(static_cast<T*>(w.third) + place, up);
  }
}

// Gate and up are asked for four rows ahead. Nothing else reads them: the results may overwrite them.
template <class T>
class FinishGradient {
 public:
  __device__ FinishGradient(const Work& w, Shared& s, const Tile& tile, int warp, int lane)
      : w_(w), s_(s), tile_(tile), warp_(warp), lane_(lane), column_(tile.column + 8 * lane) {}

  // When the sums of this phase are there.
  __device__ void run(int phase) {
    Four even, odd;
    load(0, even);
    wait(s_.made, phase);
#pragma unroll 1
    for (int batch = 0; batch < kBatches; batch += 2) {
      load(batch + 1, odd);
      finish(batch, even);
      load(batch + 2, even);
      finish(batch + 1, odd);
    }
  }

 private:
  static constexpr int kBatches = (kRows + 11) / 12;
  struct Four {
    Eight gate[4], up[4];
  };
  __device__ int row_of(int batch, int i) const { return batch * 12 + i * 3 + warp_; }
  __device__ bool is_inside(int row) const { return row < kRows && tile_.row + row < w_.m && column_ < w_.n; }
  __device__ std::int64_t place(int row) const { return static_cast<std::int64_t>(tile_.row + row) * w_.n + column_; }

  __device__ void load(int batch, Four& four) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_of(batch, i);
      if (!is_inside(row)) continue;
      four.gate[i] = read(static_cast<const T*>(w_.gate) + place(row));
      four.up[i] = read(static_cast<const T*>(w_.up) + place(row));
    }
  }
  __device__ void finish(int batch, const Four& four) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_of(batch, i);
      const Eight d = read(piece(s_, min(row, kRows - 1), lane_));
      Eight dgate, dup;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float gates[2], ups[2];
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          const float g = half_of<T>(four.gate[i].words[n], upper), dy = half_of<T>(d.words[n], upper);
          const float s = sigmoid<true>(g);
          gates[upper] = dy * half_of<T>(four.up[i].words[n], upper) * (s + g * s * (1 - s));
          ups[upper] = dy * (g * s);
        }
        dgate.words[n] = pair<T>(gates[0], gates[1]);
        dup.words[n] = pair<T>(ups[0], ups[1]);
      }
      if (!is_inside(row)) continue;
      write(static_cast<T*>(w_.first) + place(row), dgate);
      write(static_cast<T*>(w_.second) + place(row), dup);
    }
  }

  const Work& w_;
  Shared& s_;
  const Tile& tile_;
  int warp_, lane_, column_;
};

template <bool Gradient>
__device__ __forceinline__ void fetch(const Work& w, Shared& s, const Tile& tile, int rank, int step,
                                      Stage<kStages>& stage) {
  Barrier& full = s.full[stage.at];
  auto& to = s.stages[stage.at];
  wait(s.empty[stage.at], stage.phase ^ 1);
  fetch_box(to.a, w.a, step * kDepth, tile.row, full);
  if constexpr (Gradient) {
#pragma unroll
    for (int i = 2 * rank; i < 2 * rank + 2; ++i)
      fetch_box_for_both(to.b + i * kBoxBytes, w.b, tile.column + i * 64, step * kDepth, full);
  } else {
    fetch_box_for_both(to.b + rank * static_cast<int>(sizeof to.b / 2), rank == 0 ? w.b : w.other, step * kDepth,
                       tile.column, full);
  }
  arrive_with(full, kStageBytes);
  stage.next();
}

template <bool Gradient, class T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1) gated_kernel(const __grid_constant__ Work w) {
  extern __shared__ std::uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  const int group = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      start(s.full[i], 1);
      start(s.empty[i], 2 * kWarps);
    }
    start(s.made, kMultiplying);
    start(s.taken, kFinishing);
  }
  meet_in_cluster();
  // Of each weight.
  constexpr int kOwn = Gradient ? kColumns : kColumns / 2;
  const int first = static_cast<int>(blockIdx.x) / 2, by = static_cast<int>(gridDim.x) / 2;
  const int tiles = w.pairs * w.tile_columns, steps = (w.k + kDepth - 1) / kDepth;
  if (group == 0) {
    give_registers<120>();
    if (threadIdx.x == 0) {
      Stage<kStages> stage;
      for (int t = first; t < tiles; t += by) {
        const Tile tile(w, t, rank, kOwn);
        for (int step = 0; step < steps; ++step) fetch<Gradient>(w, s, tile, rank, step, stage);
      }
      // This block must be there when the other's warps arrive.
      for (int i = 0; i < kStages; ++i, stage.next()) wait(s.empty[stage.at], stage.phase ^ 1);
    } else if (warp > 0) {
      int phase = 0;
      for (int t = first; t < tiles; t += by, phase ^= 1) {
        const Tile tile(w, t, rank, kOwn);
        if constexpr (Gradient) {
          FinishGradient<T>(w, s, tile, warp - 1, lane).run(phase);
        } else {
          wait(s.made, phase);
          finish_forward<T>(w, s, tile, warp - 1, lane);
        }
        arrive(s.taken);
      }
    }
  } else {
    take_registers<192>();
    const int half = group - 1;
    float c[kColumns / 2];
    Stage<kStages> stage;
    int phase = 0;
    const auto release = [&](int at) {
      if (lane < 2) arrive_in(s.empty[at], lane);
    };
    for (int t = first; t < tiles; t += by, phase ^= 1) {
      int before = -1;
      for (int step = 0; step < steps; ++step) {
        wait(s.full[stage.at], stage.phase);
        auto& from = s.stages[stage.at];
        const std::uint64_t a = tile(from.a + half * (sizeof from.a / 2));
        const std::uint64_t b = Gradient ? wide_tile(from.b, kBoxBytes) : tile(from.b);
        hold(c);
        products_begin();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
          multiply_widest<T, Gradient>(c, a + i * kAlong, b + i * (Gradient ? kAcross : kAlong), step > 0 || i > 0);
        products_end();
        products_wait<1>();
        hold(c);
        if (before >= 0) release(before);
        before = stage.at;
        stage.next();
      }
      products_wait<0>();
      hold(c);
      release(before);
      wait(s.taken, phase ^ 1);
      const int row = half * 64 + warp * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
      for (int j = 0; j < kColumns / 8; j += 2) {
        std::uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) r[i] = pair<T>(c[4 * j + 2 * i], c[4 * j + 2 * i + 1]);
        store_matrices(shared_address(piece(s, row, j + lane / 16)), r);
      }
      arrive(s.made);
    }
  }
}

// In boxes of so many rows and 64 columns.
CUtensorMap map_of(DType dtype, const void* data, std::int64_t rows, std::int64_t columns, int box_rows) {
  return tensor_map(dtype, data, {columns, rows}, {columns * 2}, {64, box_rows}, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <bool Gradient>
void run(void* stream, const GatedSpec& spec, Work w) {
  w.m = static_cast<int>(spec.m);
  w.n = static_cast<int>(spec.n);
  w.k = static_cast<int>(spec.k);
  w.pairs = static_cast<int>(pieces(spec.m, 2 * kRows));
  w.tile_columns = static_cast<int>(pieces(spec.n, Gradient ? kColumns : kColumns / 2));
  int device = 0, processors = 0;
  TRI_CUDA(cudaGetDevice(&device));
  TRI_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const auto launch = [&](auto kernel) {
    constexpr int kBytes = sizeof(Shared) + 1024;  // and what aligning takes
    TRI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    kernel<<<2 * std::min(processors / 2, w.pairs * w.tile_columns), kThreads, kBytes,
             static_cast<cudaStream_t>(stream)>>>(w);
    device::cuda::launched("gated_linear");
  };
  spec.dtype == DType::bf16 ? launch(gated_kernel<Gradient, Bf16>) : launch(gated_kernel<Gradient, F16>);
}

}  // namespace

bool hopper_gated_fits(const GatedSpec& s) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  return size_of(s.dtype) == 2 && s.m > 0 && s.n > 0 && s.n % 8 == 0 && s.k % 8 == 0 && s.m < kMax && s.k < kMax &&
         pieces(s.m, 2 * kRows) * pieces(s.n, kColumns / 2) < kMax;
}

void hopper_gated(void* stream, const GatedSpec& s, const GatedForward& g) {
  Work w{};
  w.a = map_of(s.dtype, g.x, s.m, s.k, kRows);
  w.b = map_of(s.dtype, g.gate_weight, s.n, s.k, kColumns / 2);
  w.other = map_of(s.dtype, g.up_weight, s.n, s.k, kColumns / 2);
  w.first = g.y;
  w.second = g.gate;
  w.third = g.up;
  run<false>(stream, s, w);
}

void hopper_gated_grad(void* stream, const GatedSpec& s, const GatedGradient& g) {
  Work w{};
  w.a = map_of(s.dtype, g.dy, s.m, s.k, kRows);
  w.b = map_of(s.dtype, g.weight, s.k, s.n, kDepth);
  w.gate = g.gate;
  w.up = g.up;
  w.first = g.dgate;
  w.second = g.dup;
  run<true>(stream, s, w);
}

}  // namespace trireme::ops::cuda
