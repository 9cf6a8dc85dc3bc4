#include "trireme/ops/cuda/common.h"
#include "trireme/ops/quantize/cuda_kernels.h"

// quantize_int8 and dequantize_int8: a warp takes a block of elements that share a scale.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kWarps = 8;
constexpr float kSmallest = 1e-30F;

struct Cut {
  std::int64_t rows, width, block, blocks;

  explicit Cut(const ir::KernelSpec& spec)
      : rows(spec.inputs[0].elements() / spec.inputs[0].shape.back()),
        width(spec.inputs[0].shape.back()),
        block(spec.attributes.integer("block")),
        blocks(pieces(width, block)) {}
  __host__ __device__ std::int64_t count() const { return rows * blocks; }

  // Where block b begins, and how long it is.
  __device__ __forceinline__ std::int64_t begin(std::int64_t b) const {
    return b / blocks * width + b % blocks * block;
  }
  __device__ __forceinline__ std::int64_t length(std::int64_t b) const {
    const std::int64_t left = width - b % blocks * block;
    return left < block ? left : block;
  }
};

template <class T>
__global__ void quantize_kernel(const T* x, std::int8_t* q, float* scales, Cut cut) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (b >= cut.count()) return;
  const std::int64_t at = cut.begin(b), n = cut.length(b);
  float largest = 0;
  float wrong = 0;  // x·0 is 0 or not a number
  for (std::int64_t i = threadIdx.x; i < n; i += 32) {
    const float v = wide(x[at + i]);
    largest = fmaxf(largest, fabsf(v));
    wrong += v * 0.0F;
  }
  largest = warp_reduce<Largest>(largest);
  wrong = warp_reduce<Add>(wrong);
  const bool finite = wrong == 0.0F;
  const float inverse = finite && largest >= kSmallest ? 127.0F / largest : 0.0F;
  for (std::int64_t i = threadIdx.x; i < n; i += 32) {
    const float v = inverse > 0 ? wide(x[at + i]) : 0.0F;
    const float exact = v * inverse;
    const bool vanishes = fabsf(exact) < 1.0F && v != 0.0F;
    q[at + i] = static_cast<std::int8_t>(__float2int_rn(vanishes ? copysignf(1.0F, v) : exact));
  }
  if (threadIdx.x == 0) scales[b] = !finite ? nanf("") : inverse == 0.0F ? 0.0F : largest / 127.0F;
}

template <class T>
__global__ void dequantize_kernel(const std::int8_t* q, const float* scales, T* x, Cut cut) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (b >= cut.count()) return;
  const std::int64_t at = cut.begin(b), n = cut.length(b);
  const float scale = scales[b];
  for (std::int64_t i = threadIdx.x; i < n; i += 32) x[at + i] = narrow<T>(static_cast<float>(q[at + i]) * scale);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_quantize_int8_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([cut = Cut(spec)](const device::Launch& launch) {
      if (cut.count() == 0) return;
      quantize_kernel<T><<<blocks(pieces(cut.count(), kWarps)), dim3(32, kWarps), 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.out<std::int8_t>(0), launch.out<float>(1), cut);
      device::cuda::launched("quantize_int8");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_dequantize_int8_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([cut = Cut(spec)](const device::Launch& launch) {
      if (cut.count() == 0) return;
      dequantize_kernel<T><<<blocks(pieces(cut.count(), kWarps)), dim3(32, kWarps), 0, stream_of(launch)>>>(
          launch.in<std::int8_t>(0), launch.in<float>(1), launch.out<T>(0), cut);
      device::cuda::launched("dequantize_int8");
    });
  });
}

}  // namespace trireme::ops
