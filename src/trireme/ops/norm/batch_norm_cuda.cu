#include "trireme/ops/norm/batch_norm_kernels.cuh"
#include "trireme/ops/norm/cuda_kernels.h"

namespace trireme::ops {
namespace {

using namespace cuda;

// How many times kNormBlocks: the more a block reads of its channels before its first row, the fewer are best. (Found
// on an H200, over the norms of ResNet-50 at batch 256.)
constexpr int kApplyTimes = 16, kInputTimes = 8, kRecomputedTimes = 2;

std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }

bool has(const ir::KernelSpec& spec, std::size_t operand) {
  return spec.inputs.size() > operand && spec.inputs[operand].present;
}

// Operands and results of x's shape must allow wide loads.
int width_of(const NormGrid& grid, const device::Launch& l) {
  for (const void* p : l.inputs)
    if (!aligned16(p)) return 1;
  for (const void* p : l.outputs)
    if (!aligned16(p)) return 1;
  return grid.widest;
}

__global__ void finish_training_kernel(const float* partials, std::int64_t rows, std::int64_t chunks, int channels,
                                       Normalisation n) {
  Moments m;
  if (joined_moments(partials, rows, chunks, channels, m))
    n.trained(join_channel(), m.mean, m.squares, static_cast<double>(rows));
}

__global__ void finish_running_kernel(int channels, Normalisation n) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= channels) return;
  n.new_mean[c] = n.running_mean[c];
  n.new_var[c] = n.running_var[c];
  n.set(c, n.running_mean[c], n.running_var[c]);
}

__global__ void finish_given_kernel(const float* total, const float* squares, double rows, int channels,
                                    Normalisation n) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < channels) n.trained(c, static_cast<double>(total[c]) / rows, static_cast<double>(squares[c]), rows);
}

__global__ void finish_moments_kernel(const float* partials, std::int64_t rows, std::int64_t chunks, int channels,
                                      float* sum, float* mean, float* squares) {
  Moments m;
  if (!joined_moments(partials, rows, chunks, channels, m)) return;
  const int c = join_channel();
  sum[c] = static_cast<float>(m.mean * static_cast<double>(rows));
  mean[c] = static_cast<float>(m.mean);
  squares[c] = static_cast<float>(m.squares);
}

__global__ void joint_squares_kernel(const float* total, const float* mean, const float* squares, double rows,
                                     double all_rows, int channels, float* out) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= channels) return;
  const double apart = static_cast<double>(mean[c]) - static_cast<double>(total[c]) / all_rows;
  out[c] = static_cast<float>(static_cast<double>(squares[c]) + rows * apart * apart);
}

// The gradients of weight and bias, and with `weight` what the input's gradient takes of them.
__global__ void finish_sums_kernel(const float* partials, std::int64_t chunks, int channels, const float* weight,
                                   const float* rstd, double inverse_rows, float* dweight, float* dbias, Slopes s) {
  const int c = join_channel();
  const int at = min(c, channels - 1);
  double total[2];
  const bool mine = join_chunks(chunks, total, [&](std::int64_t k, double(&sums)[2]) {
    const float* const p = partials + k * 2 * channels + at;
    sums[0] += static_cast<double>(p[0]);
    sums[1] += static_cast<double>(p[channels]);
  });
  if (!mine || c >= channels) return;
  const double r = rstd[c];
  dbias[c] = static_cast<float>(total[0]);
  dweight[c] = static_cast<float>(total[1] * r);
  if (weight != nullptr) s.set(c, static_cast<double>(weight[c]), r, total[1] * r, total[0], inverse_rows);
}

__global__ void slopes_kernel(int channels, const float* weight, const float* rstd, const float* dweight,
                              const float* dbias, double inverse_rows, Slopes s) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < channels)
    s.set(c, static_cast<double>(weight[c]), static_cast<double>(rstd[c]), static_cast<double>(dweight[c]),
          static_cast<double>(dbias[c]), inverse_rows);
}

dim3 channel_grid(int channels) { return dim3(blocks(pieces(channels, 256))); }

template <class T>
void statistics(const device::Launch& l, const NormGrid& grid, float* partials) {
  const int n = width_of(grid, l);
  with_channels<T>(n, [&]<int N>(std::integral_constant<int, N>) {
    statistics_kernel<N, T>
        <<<grid.grid(N), grid.threads(N), 0, stream_of(l)>>>(l.in<T>(0), grid.rows, grid.channels, partials);
  });
}

template <class T>
void apply(const device::Launch& l, const NormGrid& grid, const Normalisation& n, const T* residual, bool relu) {
  if (grid.rows == 0) return;
  with_channels<T>(width_of(grid, l), [&]<int N>(std::integral_constant<int, N>) {
    const Apply<N, T> a{l.in<T>(0), residual, n.mean, n.factor, n.shift, l.out<T>(0), grid.rows, grid.channels};
    const dim3 blocks = grid.free_grid(N, kApplyTimes);
    if (relu)
      apply_kernel<true, N, T><<<blocks, grid.threads(N), 0, stream_of(l)>>>(a);
    else
      apply_kernel<false, N, T><<<blocks, grid.threads(N), 0, stream_of(l)>>>(a);
  });
}

template <class T, class F>
void with_gate(Gate gate, F&& f) {
  switch (gate) {
    case Gate::none: return f(std::integral_constant<Gate, Gate::none>{});
    case Gate::recomputed: return f(std::integral_constant<Gate, Gate::recomputed>{});
    case Gate::saved: return f(std::integral_constant<Gate, Gate::saved>{});
  }
}

template <class T>
void sums(const device::Launch& l, const NormGrid& grid, Gate gate, const Gradient<T>& g, float* partials) {
  with_gate<T>(gate, [&]<Gate G>(std::integral_constant<Gate, G>) {
    with_channels<T>(width_of(grid, l), [&]<int N>(std::integral_constant<int, N>) {
      sums_kernel<G, N, T><<<grid.grid(N), grid.threads(N), 0, stream_of(l)>>>(g, partials);
    });
  });
}

template <class T>
void input_gradient(const device::Launch& l, const NormGrid& grid, Gate gate, const Gradient<T>& g, const Slopes& s,
                    T* dx) {
  if (grid.rows == 0) return;
  with_gate<T>(gate, [&]<Gate G>(std::integral_constant<Gate, G>) {
    with_channels<T>(width_of(grid, l), [&]<int N>(std::integral_constant<int, N>) {
      const dim3 blocks = grid.free_grid(N, G == Gate::recomputed ? kRecomputedTimes : kInputTimes);
      input_kernel<G, N, T><<<blocks, grid.threads(N), 0, stream_of(l)>>>(g, s, dx);
    });
  });
}

Slopes slopes_at(float* at, int channels) { return {at, at + channels, at + 2 * channels}; }

}  // namespace

// The chunks' statistics, then factor and shift of the channels.
std::size_t batch_norm_workspace_cuda(const ir::KernelSpec& spec) {
  const NormGrid grid(spec.inputs[0]);
  return floats((3 * grid.chunks + 2) * grid.channels);
}

std::shared_ptr<device::Kernel> prepare_batch_norm_cuda(const ir::KernelSpec& spec) {
  const bool training = spec.attributes.boolean("training");
  const bool relu = spec.attributes.text("activation") == "relu";
  const bool residual = has(spec, 5);
  const double momentum = spec.attributes.real("momentum");
  const double eps = spec.attributes.real("eps");
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=, grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      auto* const partials = static_cast<float*>(l.workspace);
      float* const factor = partials + 3 * grid.chunks * grid.channels;
      const Normalisation n{l.in<float>(1),  l.in<float>(2),         l.in<float>(3),  l.in<float>(4),
                            l.out<float>(1), l.out<float>(2),        l.out<float>(3), l.out<float>(4),
                            factor,          factor + grid.channels, momentum,        eps};
      if (training) {
        statistics<T>(l, grid, partials);
        finish_training_kernel<<<join_blocks(grid.channels), kJoinThreads, 0, stream_of(l)>>>(
            partials, grid.rows, grid.chunks, grid.channels, n);
      } else {
        finish_running_kernel<<<channel_grid(grid.channels), 256, 0, stream_of(l)>>>(grid.channels, n);
      }
      apply<T>(l, grid, n, residual ? l.in<T>(5) : nullptr, relu);
      device::cuda::launched("batch_norm");
    });
  });
}

// The chunks' sums, then three numbers of the channels.
std::size_t batch_norm_grad_workspace_cuda(const ir::KernelSpec& spec) {
  const NormGrid grid(spec.inputs[0]);
  return floats((2 * grid.chunks + 3) * grid.channels);
}

std::shared_ptr<device::Kernel> prepare_batch_norm_grad_cuda(const ir::KernelSpec& spec) {
  const bool training = spec.attributes.boolean("training");
  const bool relu = spec.attributes.text("activation") == "relu";
  const Gate gate = !relu ? Gate::none : has(spec, 6) ? Gate::saved : Gate::recomputed;
  const bool more = has(spec, 7);
  const bool keep = spec.outputs.size() > 3;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=, grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      auto* const partials = static_cast<float*>(l.workspace);
      float* const rest = partials + 2 * grid.chunks * grid.channels;
      const Slopes slopes = slopes_at(rest, grid.channels);
      Gradient<T> g{
          l.in<T>(0),     l.in<T>(4),     more ? l.in<T>(7) : nullptr,  l.in<T>(6), l.in<float>(2), l.in<float>(1),
          l.in<float>(3), l.in<float>(5), keep ? l.out<T>(3) : nullptr, grid.rows,  grid.channels};
      sums<T>(l, grid, gate, g, partials);
      finish_sums_kernel<<<join_blocks(grid.channels), kJoinThreads, 0, stream_of(l)>>>(
          partials, grid.chunks, grid.channels, l.in<float>(1), l.in<float>(3),
          training ? 1.0 / static_cast<double>(grid.rows) : 0.0, l.out<float>(1), l.out<float>(2), slopes);
      if (keep) {
        g.dy = g.total;
        g.more = nullptr;
        input_gradient<T>(l, grid, Gate::none, g, slopes, l.out<T>(0));
      } else {
        input_gradient<T>(l, grid, gate, g, slopes, l.out<T>(0));
      }
      device::cuda::launched("batch_norm_grad");
    });
  });
}

// The parts, where the rows are several ranks'.

std::size_t channel_moments_workspace_cuda(const ir::KernelSpec& spec) {
  const NormGrid grid(spec.inputs[0]);
  return floats(3 * grid.chunks * grid.channels);
}

std::shared_ptr<device::Kernel> prepare_channel_moments_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      auto* const partials = static_cast<float*>(l.workspace);
      statistics<T>(l, grid, partials);
      finish_moments_kernel<<<join_blocks(grid.channels), kJoinThreads, 0, stream_of(l)>>>(
          partials, grid.rows, grid.chunks, grid.channels, l.out<float>(0), l.out<float>(1), l.out<float>(2));
      device::cuda::launched("channel_moments");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_joint_squares_cuda(const ir::KernelSpec& spec) {
  const auto own = static_cast<double>(spec.attributes.integer("rows"));
  const auto all = static_cast<double>(spec.attributes.integer("all_rows"));
  return make_kernel([own, all, channels = static_cast<int>(spec.inputs[0].elements())](const device::Launch& l) {
    if (channels == 0) return;
    joint_squares_kernel<<<channel_grid(channels), 256, 0, stream_of(l)>>>(
        l.in<float>(0), l.in<float>(1), l.in<float>(2), own, all, channels, l.out<float>(0));
    device::cuda::launched("joint_squares");
  });
}

std::size_t batch_norm_given_workspace_cuda(const ir::KernelSpec& spec) {
  return floats(2 * spec.inputs[0].shape.back());
}

std::shared_ptr<device::Kernel> prepare_batch_norm_given_cuda(const ir::KernelSpec& spec) {
  const double momentum = spec.attributes.real("momentum");
  const double eps = spec.attributes.real("eps");
  const auto rows = static_cast<double>(spec.attributes.integer("rows"));
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=, grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      auto* const factor = static_cast<float*>(l.workspace);
      const Normalisation n{l.in<float>(1),  l.in<float>(2),         l.in<float>(3),  l.in<float>(4),
                            l.out<float>(1), l.out<float>(2),        l.out<float>(3), l.out<float>(4),
                            factor,          factor + grid.channels, momentum,        eps};
      finish_given_kernel<<<channel_grid(grid.channels), 256, 0, stream_of(l)>>>(l.in<float>(5), l.in<float>(6), rows,
                                                                                 grid.channels, n);
      apply<T>(l, grid, n, nullptr, false);
      device::cuda::launched("batch_norm_given");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_batch_norm_sums_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      auto* const partials = static_cast<float*>(l.workspace);
      Gradient<T> g{};
      g.x = l.in<T>(0);
      g.dy = l.in<T>(3);
      g.mean = l.in<float>(1);
      g.rows = grid.rows;
      g.channels = grid.channels;
      sums<T>(l, grid, Gate::none, g, partials);
      finish_sums_kernel<<<join_blocks(grid.channels), kJoinThreads, 0, stream_of(l)>>>(
          partials, grid.chunks, grid.channels, nullptr, l.in<float>(2), 0.0, l.out<float>(0), l.out<float>(1),
          Slopes{});
      device::cuda::launched("batch_norm_sums");
    });
  });
}

std::size_t batch_norm_dx_workspace_cuda(const ir::KernelSpec& spec) { return floats(3 * spec.inputs[0].shape.back()); }

std::shared_ptr<device::Kernel> prepare_batch_norm_dx_cuda(const ir::KernelSpec& spec) {
  const double inverse = 1.0 / static_cast<double>(spec.attributes.integer("rows"));
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([inverse, grid = NormGrid(spec.inputs[0])](const device::Launch& l) {
      if (grid.channels == 0) return;
      const Slopes slopes = slopes_at(static_cast<float*>(l.workspace), grid.channels);
      slopes_kernel<<<channel_grid(grid.channels), 256, 0, stream_of(l)>>>(
          grid.channels, l.in<float>(1), l.in<float>(3), l.in<float>(5), l.in<float>(6), inverse, slopes);
      Gradient<T> g{};
      g.x = l.in<T>(0);
      g.dy = l.in<T>(4);
      g.mean = l.in<float>(2);
      g.rows = grid.rows;
      g.channels = grid.channels;
      input_gradient<T>(l, grid, Gate::none, g, slopes, l.out<T>(0));
      device::cuda::launched("batch_norm_dx");
    });
  });
}

}  // namespace trireme::ops
