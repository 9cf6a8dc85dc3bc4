#pragma once
#include <string>

#include "trireme/device/cuda/check.h"

// The activation functions and their derivatives, as ops/activation.h has them for the CPU.
namespace trireme::ops::cuda {

struct Identity {
  static __device__ __forceinline__ float value(float x) { return x; }
  static __device__ __forceinline__ float derivative(float) { return 1; }
};

// The derivative may also be taken at relu's output: both are positive together. NaN stays NaN.
struct Relu {
  static __device__ __forceinline__ float value(float x) { return x < 0 ? 0 : x; }
  static __device__ __forceinline__ float derivative(float x) { return x > 0 ? 1 : 0; }
};

struct Gelu {
  static __device__ __forceinline__ float value(float x) { return x * normcdff(x); }
  static __device__ __forceinline__ float derivative(float x) {
    return normcdff(x) + x * expf(-0.5F * x * x) * 0.398942280F;  // 1/√(2π)
  }
};

// The quick ones are good to about 2⁻²⁰, for what is then rounded to 16 bits, and take a third of the instructions.
template <bool Quick>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (Quick)
    return __fdividef(1.0F, 1.0F + __expf(-x));
  else
    return 1 / (1 + expf(-x));
}

// x/2·(1 + tanh u) with u = √(2/π)·(x + 0.044715·x³), written as x·sigmoid(2u).
template <bool Quick>
struct GeluTanhOf {
  static constexpr float kLinear = 1.59576912F;  // 2·√(2/π)
  static constexpr float kCubic = kLinear * 0.044715F;
  static __device__ __forceinline__ float value(float x) { return x * sigmoid<Quick>(x * (kLinear + kCubic * x * x)); }
  static __device__ __forceinline__ float derivative(float x) {
    const float s = sigmoid<Quick>(x * (kLinear + kCubic * x * x));
    return s + x * (kLinear + 3 * kCubic * x * x) * s * (1 - s);
  }
};

using GeluTanh = GeluTanhOf<false>;

template <bool Quick>
struct SiluOf {
  static __device__ __forceinline__ float value(float x) { return x * sigmoid<Quick>(x); }
  static __device__ __forceinline__ float derivative(float x) {
    const float s = sigmoid<Quick>(x);
    return s + x * s * (1 - s);
  }
};
using Silu = SiluOf<false>;

template <class F>
decltype(auto) with_activation(const std::string& name, F&& f) {
  if (name == "none") return f(Identity{});
  if (name == "relu") return f(Relu{});
  if (name == "gelu") return f(Gelu{});
  if (name == "gelu_tanh") return f(GeluTanh{});
  if (name == "silu") return f(Silu{});
  device::cuda::failed("activation", "there is none of that name");
}

}  // namespace trireme::ops::cuda
