#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/compress/pack.h"
#include "trireme/ops/cuda/common.h"

// pack and unpack, to the same bits as on the CPU.
namespace trireme::ops {
namespace {

using namespace cuda;
using Code = PackLayout::Code;

constexpr int kThreads = 128;
constexpr int kLargestBlock = 4096;
constexpr std::uint8_t kNoNumber = 255;

// As ByteFloat has it.
__device__ std::uint8_t encode_byte(float magnitude) {
  constexpr std::uint32_t kBase = (127U - 44U) << 2U;
  if (!isfinite(magnitude)) return kNoNumber;
  const std::uint32_t rounded = (__float_as_uint(magnitude) + (1U << 20U)) >> 21U;
  if (rounded <= kBase) return 0;
  return static_cast<std::uint8_t>(rounded - kBase < kNoNumber - 1U ? rounded - kBase : kNoNumber - 1U);
}
__device__ float decode_byte(std::uint32_t code) {
  constexpr std::uint32_t kBase = (127U - 44U) << 2U;
  if (code == 0) return 0.0F;
  return code == kNoNumber ? nanf("") : __uint_as_float((code + kBase) << 21U);
}

// Element i of a part; those behind its end are zero.
__device__ float decode(const PackLayout& l, const std::uint8_t* part, std::int64_t i) {
  const std::int64_t b = i / l.block;
  switch (l.code) {
    case Code::bf16: return wide(reinterpret_cast<const Bf16*>(part + l.codes)[i]);
    case Code::int8:
      return __fmul_rn(static_cast<float>(static_cast<std::int8_t>(part[l.codes + i])),
                       reinterpret_cast<const float*>(part + l.scales)[b]);
    default: break;
  }
  if (i >= *reinterpret_cast<const std::int32_t*>(part)) return 0.0F;
  const std::uint32_t apart = reinterpret_cast<const std::uint16_t*>(part + l.apart)[b];
  if ((apart >> 9U) == i - b * l.block)
    return (apart & 256U) != 0 ? -decode_byte(apart & 255U) : decode_byte(apart & 255U);
  const float scale = decode_byte(part[l.scales + b]);
  return (part[l.codes + i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
}

template <class T>
struct Packing {
  PackLayout layout;
  std::int64_t n;
  const T* x;
  const float* carry;
  const float* divisor;
  std::uint8_t* packed;
  float* rest;

  __device__ std::int64_t extent(std::int64_t p) const {
    const std::int64_t left = n - p * layout.chunk;
    return left < 0 ? 0 : left < layout.chunk ? left : layout.chunk;
  }
};

// What lies beyond the end of the tensor, and padding; and for signs where a part ends. A block to a part.
template <class T>
__global__ void prepare_kernel(Packing<T> k) {
  const PackLayout& l = k.layout;
  const std::int64_t p = blockIdx.x, extent = k.extent(p);
  std::uint8_t* const part = k.packed + p * l.bytes;
  const std::int64_t clear = extent < l.chunk ? 0 : l.bytes < 4 ? 0 : l.bytes - 4;
  for (std::int64_t i = clear + threadIdx.x; i < l.bytes; i += blockDim.x) part[i] = 0;
  if (l.code != Code::sign) return;
  for (std::int64_t i = l.scales + l.blocks + threadIdx.x; i < l.apart; i += blockDim.x) part[i] = 0;
  __shared__ int last;
  std::int64_t end = extent;
  for (; end > 0; end -= blockDim.x) {
    if (threadIdx.x == 0) last = -1;
    __syncthreads();
    const std::int64_t i = end - 1 - threadIdx.x;
    const std::int64_t at = p * l.chunk + i;
    if (i >= 0 && !(wide(k.x[at]) == 0 && (k.carry == nullptr || k.carry[at] == 0)))
      atomicMax(&last, static_cast<int>(blockDim.x - 1 - threadIdx.x));
    __syncthreads();
    if (last >= 0) break;
    __syncthreads();
  }
  // Thread t looked at end − 1 − t, and `last` is the least such t, counted from the other side.
  __syncthreads();
  if (threadIdx.x == 0)
    *reinterpret_cast<std::int32_t*>(part) =
        end > 0 ? static_cast<std::int32_t>(end - (static_cast<std::int64_t>(blockDim.x) - 1 - last)) : 0;
}

// A block to a block of elements.
template <class T>
__global__ void pack_kernel(Packing<T> k) {
  __shared__ float a[kLargestBlock];
  __shared__ float shared[32];
  __shared__ double sums[8];
  const PackLayout& l = k.layout;
  const std::int64_t p = blockIdx.x / l.blocks, b = blockIdx.x % l.blocks, first = b * l.block;
  const std::int64_t left = k.extent(p) - first;
  const int there = static_cast<int>(left < 0 ? 0 : left < l.block ? left : l.block);
  if (there == 0) return;
  const std::int64_t at = p * l.chunk + first;
  std::uint8_t* const part = k.packed + p * l.bytes;
  const float inverse = k.divisor == nullptr ? 1.0F : 1.0F / *k.divisor;
  for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads)
    a[i] = k.carry == nullptr ? wide(k.x[at + i]) * inverse : fmaf(wide(k.x[at + i]), inverse, k.carry[at + i]);
  __syncthreads();

  if (l.code == Code::bf16) {
    for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads)
      reinterpret_cast<Bf16*>(part + l.codes)[first + i] = narrow<Bf16>(a[i]);
  } else if (l.code == Code::int8) {
    float most = 0;
    float wrong = 0;  // x·0 is 0 or not a number
    for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads) {
      most = fmaxf(most, fabsf(a[i]));
      wrong += a[i] * 0.0F;
    }
    most = block_reduce<Largest>(most, shared);
    if (block_reduce<Add>(wrong, shared) != 0.0F) most = nanf("");
    const float scale = most / 127.0F;
    // A scale that is not a normal number cannot be divided by: what is that small stays behind.
    const bool usable = scale >= 1.17549435e-38F;
    const float factor = usable ? 127.0F / most : 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads)
      part[l.codes + first + i] =
          usable ? static_cast<std::uint8_t>(static_cast<std::int8_t>(__float2int_rn(a[i] * factor))) : 0;
    if (threadIdx.x == 0) reinterpret_cast<float*>(part + l.scales)[b] = usable || isnan(most) ? scale : 0.0F;
  } else {
    const std::int64_t held = *reinterpret_cast<const std::int32_t*>(part) - first;
    const int n = static_cast<int>(held < 0 ? 0 : held < there ? held : there);
    for (int i = static_cast<int>(threadIdx.x); i < (there + 7) / 8; i += kThreads) {
      std::uint32_t bits = 0;
      for (int j = 8 * i; j < 8 * i + 8 && j < n; ++j) bits |= (a[j] < 0 ? 1U : 0U) << (j % 8);
      part[l.codes + first / 8 + i] = static_cast<std::uint8_t>(bits);
    }
    if (threadIdx.x < 8) {
      double sum = 0;
      for (int i = static_cast<int>(threadIdx.x); i < n; i += 8) sum += static_cast<double>(fabsf(a[i]));
      sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int most = 0;
      for (int i = 1; i < n; ++i)
        if (fabsf(a[i]) > fabsf(a[most])) most = i;
      const float largest = n == 0 ? 0.0F : a[most];
      double others = 0;
      for (const double s : sums) others += s;
      others -= static_cast<double>(fabsf(largest));
      const std::uint8_t scale =
          encode_byte(n < 2 ? fabsf(largest) : static_cast<float>(others / static_cast<double>(n - 1)));
      part[l.scales + b] = scale;
      // Where one is no number, none is.
      const std::uint32_t magnitude = scale == kNoNumber ? kNoNumber : encode_byte(fabsf(largest));
      reinterpret_cast<std::uint16_t*>(part + l.apart)[b] =
          static_cast<std::uint16_t>(magnitude | (largest < 0 ? 256U : 0U) | static_cast<std::uint32_t>(most) << 9U);
    }
  }
  if (k.rest == nullptr) return;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads)
    k.rest[at + i] = __fsub_rn(a[i], decode(l, part, first + i));
}

template <class T>
__global__ void unpack_kernel(PackLayout l, const std::uint8_t* packed, const float* factor, std::int64_t parts,
                              bool sum, T* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = decode(l, packed + (sum ? 0 : i / l.chunk * l.bytes), sum ? i : i % l.chunk);
  if (sum)
    for (std::int64_t p = 1; p < parts; ++p) value += decode(l, packed + p * l.bytes, i);
  y[i] = narrow<T>(factor == nullptr ? value : value * *factor);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_pack_cuda(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  const std::int64_t n = spec.inputs[0].elements(), parts = a.integer("parts");
  const PackLayout layout(a.text("code"), n, parts, a.integer("block"));
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (layout.bytes == 0) return;
      const Packing<T> packing{layout,
                               n,
                               launch.in<T>(0),
                               launch.in<float>(1),
                               launch.in<float>(2),
                               launch.out<std::uint8_t>(0),
                               launch.outputs.size() > 1 ? launch.out<float>(1) : nullptr};
      prepare_kernel<T><<<blocks(parts), 1024, 0, stream_of(launch)>>>(packing);
      if (layout.blocks > 0) pack_kernel<T><<<blocks(parts * layout.blocks), kThreads, 0, stream_of(launch)>>>(packing);
      device::cuda::launched("pack");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_unpack_cuda(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  const std::int64_t n = spec.outputs[0].elements(), parts = spec.inputs[0].shape[0];
  const bool sum = a.boolean("sum");
  const PackLayout layout(a.text("code"), n, sum ? 1 : parts, a.integer("block"));
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (n == 0) return;
      unpack_kernel<T><<<blocks(pieces(n, 256)), 256, 0, stream_of(launch)>>>(
          layout, launch.in<std::uint8_t>(0), launch.in<float>(1), parts, sum, launch.out<T>(0), n);
      device::cuda::launched("unpack");
    });
  });
}

}  // namespace trireme::ops
