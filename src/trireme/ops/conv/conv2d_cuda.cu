#include "trireme/device/cuda/convolution.h"
#include "trireme/ops/conv/cuda_kernels.h"
#include "trireme/ops/conv/even_padding_cuda.h"
#include "trireme/ops/conv/fold_cuda.h"
#include "trireme/ops/conv/problem.h"
#include "trireme/ops/cuda/common.h"

// Convolutions by cuDNN, or as matrix products, else by plain kernels.
namespace trireme::ops {
namespace {

using namespace cuda;
using device::cuda::Convolution;
using device::cuda::ConvolutionSpec;
using device::cuda::Gemm;
using Pass = ConvolutionSpec::Pass;

// A plain kernel's sums of f32 are no loss where this little is to be done.
constexpr double kLittle = 1e9;

bool unevenly_padded(const ConvolutionSpec& spec) {
  return spec.pass == Pass::weight_gradient && !foldable(spec) && !spec.evenly_padded();
}

struct Plan {
  ConvolutionSpec conv;
  DType out = DType::f32;
  bool accumulate = false;
  std::size_t stage_bytes = 0;  // what the library wrote, before it is added to the output or widened

  Plan(Pass pass, const ConvProblem& p, const ir::KernelSpec& spec) : accumulate(spec.accumulate) {
    out = spec.outputs[0].dtype;
    conv.pass = pass;
    conv.n = p.n, conv.h = p.h, conv.w = p.w, conv.c = p.c;
    conv.k = p.k, conv.r = p.window.kernel[0], conv.s = p.window.kernel[1];
    conv.p = p.p, conv.q = p.q;
    conv.stride = p.window.stride;
    conv.padding = p.window.padding;
    conv.dilation = p.window.dilation;
    conv.groups = p.groups;
    conv.input = spec.inputs[0].dtype;
    conv.output = out;
    conv.tf32 = spec.attributes.boolean("tf32");
    if (accumulate || out != conv.input)
      stage_bytes = (static_cast<std::size_t>(spec.outputs[0].elements()) * size_of(out) + 255) / 256 * 256;
  }
  std::size_t workspace() const { return stage_bytes + library_workspace(conv); }

  // With what it is folded or padded into.
  static std::size_t library_workspace(const ConvolutionSpec& spec) {
    if (unevenly_padded(spec)) return evened_image_bytes(spec) + Convolution::workspace(evened(spec));
    if (!foldable(spec)) return Convolution::workspace(spec);
    return folded_image_bytes(spec) + folded_weight_bytes(spec) +
           std::max(Convolution::workspace(spec), Convolution::workspace(folded(spec)));
  }
};

// The window of a plain kernel.
struct Shape4 {
  int n, h, w, c, k, r, s, p, q;
  int stride[2], padding[2], dilation[2];
  int c_group, k_group;

  explicit Shape4(const ConvolutionSpec& v) {
    const auto to = [](std::int64_t x) { return static_cast<int>(x); };
    n = to(v.n), h = to(v.h), w = to(v.w), c = to(v.c), k = to(v.k), r = to(v.r), s = to(v.s), p = to(v.p), q = to(v.q);
    for (std::size_t i = 0; i < 2; ++i) {
      stride[i] = to(v.stride[i]);
      padding[i] = to(v.padding[i]);
      dilation[i] = to(v.dilation[i]);
    }
    c_group = to(v.c / v.groups);
    k_group = to(v.k / v.groups);
  }
  __device__ std::int64_t x_at(int image, int i, int j) const {
    return ((static_cast<std::int64_t>(image) * h + i) * w + j) * c;
  }
  __device__ std::int64_t y_at(int image, int i, int j) const {
    return ((static_cast<std::int64_t>(image) * p + i) * q + j) * k;
  }
};

template <class T, class B>
__global__ void forward_kernel(Shape4 v, const T* x, const T* w, const B* bias, T* y, std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const int o = static_cast<int>(at % v.k);
  const int j = static_cast<int>(at / v.k % v.q);
  const int i = static_cast<int>(at / v.k / v.q % v.p);
  const int image = static_cast<int>(at / v.k / v.q / v.p);
  float sum = 0;
  for (int a = 0; a < v.r; ++a) {
    const int row = i * v.stride[0] - v.padding[0] + a * v.dilation[0];
    if (row < 0 || row >= v.h) continue;
    for (int b = 0; b < v.s; ++b) {
      const int column = j * v.stride[1] - v.padding[1] + b * v.dilation[1];
      if (column < 0 || column >= v.w) continue;
      const T* from = x + v.x_at(image, row, column) + o / v.k_group * v.c_group;
      const T* weight = w + ((static_cast<std::int64_t>(o) * v.r + a) * v.s + b) * v.c_group;
      for (int m = 0; m < v.c_group; ++m) sum = fmaf(wide(from[m]), wide(weight[m]), sum);
    }
  }
  y[at] = narrow<T>(bias != nullptr ? sum + wide(bias[o]) : sum);
}

template <class T>
__global__ void input_kernel(Shape4 v, const T* dy, const T* w, T* dx, std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const int m = static_cast<int>(at % v.c);
  const int column = static_cast<int>(at / v.c % v.w);
  const int row = static_cast<int>(at / v.c / v.w % v.h);
  const int image = static_cast<int>(at / v.c / v.w / v.h);
  const int first = m / v.c_group * v.k_group;  // of the group's outputs
  float sum = 0;
  for (int a = 0; a < v.r; ++a) {
    const int i = row + v.padding[0] - a * v.dilation[0];
    if (i < 0 || i % v.stride[0] != 0 || i / v.stride[0] >= v.p) continue;
    for (int b = 0; b < v.s; ++b) {
      const int j = column + v.padding[1] - b * v.dilation[1];
      if (j < 0 || j % v.stride[1] != 0 || j / v.stride[1] >= v.q) continue;
      const T* from = dy + v.y_at(image, i / v.stride[0], j / v.stride[1]) + first;
      const T* weight = w + ((static_cast<std::int64_t>(first) * v.r + a) * v.s + b) * v.c_group + m % v.c_group;
      const std::int64_t next = static_cast<std::int64_t>(v.r) * v.s * v.c_group;
      for (int o = 0; o < v.k_group; ++o) sum = fmaf(wide(from[o]), wide(weight[o * next]), sum);
    }
  }
  dx[at] = narrow<T>(sum);
}

// A block to a weight.
template <class T, class Out>
__global__ void weight_kernel(Shape4 v, const T* x, const T* dy, Out* dw, bool accumulate) {
  __shared__ float shared[32];
  const std::int64_t at = blockIdx.x;
  const int m = static_cast<int>(at % v.c_group);
  const int b = static_cast<int>(at / v.c_group % v.s);
  const int a = static_cast<int>(at / v.c_group / v.s % v.r);
  const int o = static_cast<int>(at / v.c_group / v.s / v.r);
  const int channel = o / v.k_group * v.c_group + m;
  const std::int64_t positions = static_cast<std::int64_t>(v.n) * v.p * v.q;
  float sum = 0;
  for (std::int64_t t = threadIdx.x; t < positions; t += blockDim.x) {
    const int j = static_cast<int>(t % v.q);
    const int i = static_cast<int>(t / v.q % v.p);
    const int image = static_cast<int>(t / v.q / v.p);
    const int row = i * v.stride[0] - v.padding[0] + a * v.dilation[0];
    const int column = j * v.stride[1] - v.padding[1] + b * v.dilation[1];
    if (row < 0 || row >= v.h || column < 0 || column >= v.w) continue;
    sum = fmaf(wide(x[v.x_at(image, row, column) + channel]), wide(dy[t * v.k + o]), sum);
  }
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x == 0) dw[at] = narrow<Out>(accumulate ? wide(dw[at]) + sum : sum);
}

template <int N, class T, class B>
__global__ void bias_kernel(T* y, const B* bias, std::int64_t channels, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= count) return;
  Pack<T, N> pack = load<N>(y + i);
#pragma unroll
  for (int j = 0; j < N; ++j) pack.v[j] = narrow<T>(wide(pack.v[j]) + wide(bias[(i + j) % channels]));
  store<N>(y + i, pack);
}

// y = x, or y += x.
template <class T, class Out>
__global__ void take_kernel(const T* x, Out* y, bool accumulate, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = narrow<Out>(accumulate ? wide(y[i]) + wide(x[i]) : wide(x[i]));
}

using Step = std::function<void(const device::Launch&)>;

Step plain_forward(const Plan& plan, const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_native(spec.inputs[2].dtype, [&]<class B>(B) -> Step {
      return [v = Shape4(plan.conv), count = spec.outputs[0].elements()](const device::Launch& l) {
        forward_kernel<<<blocks(pieces(count, 256)), 256, 0, stream_of(l)>>>(v, l.in<T>(0), l.in<T>(1), l.in<B>(2),
                                                                             l.out<T>(0), count);
        device::cuda::launched("conv2d");
      };
    });
  });
}

Step add_bias(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_native(spec.inputs[2].dtype, [&]<class B>(B) -> Step {
      return [channels = spec.outputs[0].shape.back(), count = spec.outputs[0].elements()](const device::Launch& l) {
        constexpr int N = kWidest<T>;
        if (count % N == 0)
          bias_kernel<N>
              <<<blocks(pieces(count / N, 256)), 256, 0, stream_of(l)>>>(l.out<T>(0), l.in<B>(2), channels, count);
        else
          bias_kernel<1>
              <<<blocks(pieces(count, 256)), 256, 0, stream_of(l)>>>(l.out<T>(0), l.in<B>(2), channels, count);
        device::cuda::launched("conv2d's bias");
      };
    });
  });
}

Step plain_input(const Plan& plan, const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> Step {
    return [v = Shape4(plan.conv), count = spec.outputs[0].elements()](const device::Launch& l) {
      input_kernel<<<blocks(pieces(count, 256)), 256, 0, stream_of(l)>>>(v, l.in<T>(0), l.in<T>(1), l.out<T>(0), count);
      device::cuda::launched("conv2d_grad_input");
    };
  });
}

Step plain_weight(const Plan& plan, const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_native(spec.outputs[0].dtype, [&]<class Out>(Out) -> Step {
      return [v = Shape4(plan.conv), count = spec.outputs[0].elements(),
              accumulate = plan.accumulate](const device::Launch& l) {
        weight_kernel<<<blocks(count), 128, 0, stream_of(l)>>>(v, l.in<T>(0), l.in<T>(1), l.out<Out>(0), accumulate);
        device::cuda::launched("conv2d_grad_weight");
      };
    });
  });
}

// From the workspace, where the library left it.
Step take(DType staged, const Plan& plan, const ir::KernelSpec& spec) {
  return dispatch_native(staged, [&]<class T>(T) {
    return dispatch_native(spec.outputs[0].dtype, [&]<class Out>(Out) -> Step {
      return [count = spec.outputs[0].elements(), accumulate = plan.accumulate](const device::Launch& l) {
        take_kernel<<<blocks(pieces(count, 256)), 256, 0, stream_of(l)>>>(static_cast<const T*>(l.workspace),
                                                                          l.out<Out>(0), accumulate, count);
        device::cuda::launched("conv2d_grad_weight's sum");
      };
    });
  });
}

bool aligned(const device::Launch& l) {
  return aligned16(l.inputs[0]) && aligned16(l.inputs[1]) && aligned16(l.outputs[0]);
}

std::shared_ptr<device::Kernel> nothing() {
  return make_kernel([](const device::Launch&) {});
}

Plan forward_plan(const ir::KernelSpec& spec) {
  return {Pass::forward, conv_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec};
}
Plan input_plan(const ir::KernelSpec& spec) {
  return {Pass::input_gradient, conv_input_gradient_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec};
}
Plan weight_plan(const ir::KernelSpec& spec) {
  return {Pass::weight_gradient, conv_weight_gradient_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec};
}

// Null where the library cannot.
using Run = std::function<void(void* stream, const void* x, const void* w, const void* y, void* workspace)>;
Run directly(const ConvolutionSpec& spec, device::Algorithms* algorithms) {
  std::shared_ptr<Convolution> conv = Convolution::make(spec, Convolution::workspace(spec), algorithms);
  if (!conv) return nullptr;
  return [conv](void* stream, const void* x, const void* w, const void* y, void* workspace) {
    conv->run(stream, x, w, y, workspace);
  };
}

// Its images padded evenly first.
Run evenly(const ConvolutionSpec& spec, device::Algorithms* algorithms) {
  const Run run = directly(evened(spec), algorithms);
  if (!run) return nullptr;
  return [spec, run](void* stream, const void* x, const void* w, const void* y, void* workspace) {
    even_images(stream, spec, x, workspace);
    run(stream, workspace, w, y, static_cast<std::byte*>(workspace) + evened_image_bytes(spec));
  };
}

Run by_library(const ConvolutionSpec& spec, device::Algorithms* algorithms) {
  if (unevenly_padded(spec)) return evenly(spec, algorithms);
  const Run run = foldable(spec) ? directly(folded(spec), algorithms) : nullptr;
  if (!run) return directly(spec, algorithms);
  return [spec, run](void* stream, const void* x, const void* w, const void* y, void* workspace) {
    auto* const z = static_cast<std::byte*>(workspace);
    std::byte* const v = z + folded_image_bytes(spec);
    std::byte* const rest = v + folded_weight_bytes(spec);
    fold_images(stream, spec, x, z);
    if (spec.pass == Pass::forward) {
      fold_weights(stream, spec, w, v);
      run(stream, z, v, y, rest);
    } else {
      run(stream, z, v, y, rest);
      unfold_weights(stream, spec, v, const_cast<void*>(w));
    }
  };
}

}  // namespace

std::size_t conv2d_workspace_cuda(const ir::KernelSpec& spec) { return forward_plan(spec).workspace(); }
std::size_t conv2d_grad_input_workspace_cuda(const ir::KernelSpec& spec) { return input_plan(spec).workspace(); }
std::size_t conv2d_grad_weight_workspace_cuda(const ir::KernelSpec& spec) { return weight_plan(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_conv2d_cuda(const ir::KernelSpec& spec) {
  const Plan plan = forward_plan(spec);
  if (spec.outputs[0].elements() == 0) return nothing();
  const Step plain = plain_forward(plan, spec);
  const Step bias = spec.inputs[2].present ? add_bias(spec) : nullptr;
  return make_kernel([plain, bias, run = by_library(plan.conv, spec.algorithms)](const device::Launch& l) {
    if (!run || !aligned(l)) return plain(l);
    run(l.native_stream, l.inputs[0], l.inputs[1], l.outputs[0], l.workspace);
    if (bias) bias(l);
  });
}

std::shared_ptr<device::Kernel> prepare_conv2d_grad_input_cuda(const ir::KernelSpec& spec) {
  const Plan plan = input_plan(spec);
  if (spec.outputs[0].elements() == 0) return nothing();
  return make_kernel(
      [plain = plain_input(plan, spec), run = by_library(plan.conv, spec.algorithms)](const device::Launch& l) {
        if (!run || !aligned(l)) return plain(l);
        run(l.native_stream, l.outputs[0], l.inputs[1], l.inputs[0], l.workspace);
      });
}

std::shared_ptr<device::Kernel> prepare_conv2d_grad_weight_cuda(const ir::KernelSpec& spec) {
  const Plan plan = weight_plan(spec);
  if (spec.outputs[0].elements() == 0) return nothing();
  const Step plain = plain_weight(plan, spec);
  if (auto product = as_product(plan.conv)) {
    product->accumulate = plan.accumulate;
    if (plan.accumulate && plan.conv.n > 0)
      return make_kernel([gemm = std::make_shared<Gemm>(*product, spec.algorithms)](const device::Launch& l) {
        gemm->run(l.native_stream, l.inputs[1], l.inputs[0], l.outputs[0], l.workspace);
      });
  }
  ConvolutionSpec conv = plan.conv;
  Run run = conv.n > 0 ? by_library(conv, spec.algorithms) : nullptr;
  if (!run && conv.n > 0 && conv.output != conv.input && conv.flops() > kLittle) {
    conv.output = conv.input;  // rounded once more than it need be
    run = by_library(conv, spec.algorithms);
  }
  const bool staged = plan.accumulate || conv.output != plan.out;
  return make_kernel([plan, plain, run, staged, add = take(conv.output, plan, spec)](const device::Launch& l) {
    if (!run || !aligned(l)) return plain(l);
    void* const target = staged ? l.workspace : l.outputs[0];
    void* const scratch = static_cast<std::byte*>(l.workspace) + plan.stage_bytes;
    run(l.native_stream, l.inputs[0], target, l.inputs[1], scratch);
    if (staged) add(l);
  });
}

}  // namespace trireme::ops
