#include "trireme/ops/attention/rotary.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

// rotary, softmax and its gradient.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMostFrequencies = 256;

// Turns per position, passed by value: no memory of the device is needed for them.
struct Frequencies {
  double value[kMostFrequencies];
};

// A block has the heads of one position; its turns are computed once, the angle in double as large positions need.
template <class T>
__global__ void rotary_kernel(const T* x, T* y, const std::int32_t* offset, const __grid_constant__ Frequencies f,
                              std::int64_t positions, int heads, int half, float sign) {
  __shared__ float cosine[kMostFrequencies], sine[kMostFrequencies];
  const std::int64_t row = blockIdx.x;
  const double position = static_cast<double>(row % positions + (offset != nullptr ? *offset : 0));
  for (int i = static_cast<int>(threadIdx.x); i < half; i += static_cast<int>(blockDim.x)) {
    constexpr double kTurn = 6.283185307179586;
    double angle = position * f.value[i];
    angle -= floor(angle / kTurn) * kTurn;
    float s = 0, c = 0;
    sincosf(static_cast<float>(angle), &s, &c);
    cosine[i] = c;
    sine[i] = s * sign;
  }
  __syncthreads();
  const std::int64_t base = row * heads * 2 * half;
  for (int i = static_cast<int>(threadIdx.x); i < heads * half; i += static_cast<int>(blockDim.x)) {
    const int h = i / half, c = i % half;
    const std::int64_t first = base + static_cast<std::int64_t>(h) * 2 * half + c, second = first + half;
    const float a = wide(x[first]), b = wide(x[second]);
    y[first] = narrow<T>(a * cosine[c] - b * sine[c]);
    y[second] = narrow<T>(b * cosine[c] + a * sine[c]);
  }
}

template <class T>
__global__ void softmax_kernel(const T* x, T* y, std::int64_t width) {
  __shared__ float shared[32];
  const T* from = x + blockIdx.x * width;
  T* to = y + blockIdx.x * width;
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, wide(from[i]));
  top = block_reduce<Largest>(top, shared);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += expf(wide(from[i]) - top);
  sum = block_reduce<Add>(sum, shared);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = narrow<T>(expf(wide(from[i]) - top) / sum);
}

template <class T>
__global__ void softmax_grad_kernel(const T* y, const T* dy, T* dx, std::int64_t width) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x * width;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += wide(y[row + i]) * wide(dy[row + i]);
  sum = block_reduce<Add>(sum, shared);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x)
    dx[row + i] = narrow<T>(wide(y[row + i]) * (wide(dy[row + i]) - sum));
}

}  // namespace

bool supports_rotary_cuda(const ir::KernelSpec& spec) { return spec.inputs[0].shape[3] / 2 <= kMostFrequencies; }

std::shared_ptr<device::Kernel> prepare_rotary_cuda(const ir::KernelSpec& spec) {
  const Shape& shape = spec.inputs[0].shape;
  const std::vector<double> frequencies = rotary_frequencies(shape[3], spec.attributes);
  Frequencies f{};
  std::copy(frequencies.begin(), frequencies.end(), f.value);
  const float sign = spec.attributes.boolean("inverse") ? -1.0F : 1.0F;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (shape.elements() == 0) return;
      rotary_kernel<T><<<blocks(shape[0] * shape[1]), 256, 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.out<T>(0), launch.in<std::int32_t>(1), f, shape[1], static_cast<int>(shape[2]),
          static_cast<int>(shape[3] / 2), sign);
      device::cuda::launched("rotary");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_softmax_cuda(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([rows, width](const device::Launch& launch) {
      if (rows == 0) return;
      softmax_kernel<T><<<blocks(rows), 128, 0, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0), width);
      device::cuda::launched("softmax");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_softmax_grad_cuda(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([rows, width](const device::Launch& launch) {
      if (rows == 0) return;
      softmax_grad_kernel<T>
          <<<blocks(rows), 128, 0, stream_of(launch)>>>(launch.in<T>(0), launch.in<T>(1), launch.out<T>(0), width);
      device::cuda::launched("softmax_grad");
    });
  });
}

}  // namespace trireme::ops
