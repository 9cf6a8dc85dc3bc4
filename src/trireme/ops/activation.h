#pragma once
#include <numbers>
#include <string>

#include "trireme/core/error.h"
#include "trireme/ops/simd.h"

// The activation functions and their derivatives on f32 vectors, for every kernel that has one inside.
namespace trireme::ops {

struct Identity {
  static HWY_INLINE simd::Vec value(simd::Vec x) { return x; }
  static HWY_INLINE simd::Vec derivative(simd::Vec) { return simd::set(1.0F); }
};

// The derivative may also be taken at relu's output: both are positive together. NaN stays NaN.
struct Relu {
  static HWY_INLINE simd::Vec value(simd::Vec x) { return simd::hn::IfThenZeroElse(simd::hn::Lt(x, simd::zero()), x); }
  static HWY_INLINE simd::Vec derivative(simd::Vec x) {
    return simd::hn::IfThenElseZero(simd::hn::Gt(x, simd::zero()), simd::set(1.0F));
  }
};

// x·Φ(x), Φ the normal distribution.
struct Gelu {
  static HWY_INLINE simd::Vec value(simd::Vec x) { return x * distribution(x); }
  static HWY_INLINE simd::Vec derivative(simd::Vec x) {
    const simd::Vec density = simd::exp(x * x * simd::set(-0.5F)) * simd::set(0.398942280F);  // 1/√(2π)
    return simd::hn::MulAdd(x, density, distribution(x));
  }

 private:
  static HWY_INLINE simd::Vec distribution(simd::Vec x) {
    const simd::Vec half = simd::set(0.5F);
    return simd::hn::MulAdd(simd::erf(x * simd::set(1.0F / std::numbers::sqrt2_v<float>)), half, half);
  }
};

// x/2·(1 + tanh u) with u = √(2/π)·(x + 0.044715·x³), written as x·sigmoid(2u).
struct GeluTanh {
  static HWY_INLINE simd::Vec value(simd::Vec x) { return x * simd::sigmoid(argument(x)); }
  static HWY_INLINE simd::Vec derivative(simd::Vec x) {
    const simd::Vec s = simd::sigmoid(argument(x));
    const simd::Vec slope = simd::hn::MulAdd(x * x, simd::set(3.0F * kCubic), simd::set(kLinear));
    return simd::hn::MulAdd(x * slope, s * (simd::set(1.0F) - s), s);
  }

 private:
  static constexpr float kLinear = 1.59576912F;  // 2·√(2/π)
  static constexpr float kCubic = kLinear * 0.044715F;
  static HWY_INLINE simd::Vec argument(simd::Vec x) {
    return x * simd::hn::MulAdd(x * x, simd::set(kCubic), simd::set(kLinear));
  }
};

struct Silu {
  static HWY_INLINE simd::Vec value(simd::Vec x) { return x * simd::sigmoid(x); }
  static HWY_INLINE simd::Vec derivative(simd::Vec x) {
    const simd::Vec s = simd::sigmoid(x);
    return simd::hn::MulAdd(x * s, simd::set(1.0F) - s, s);
  }
};

// Calls `f` with the activation of that name; throws on an unknown one.
//   with_activation("silu", [&](auto activation) { … activation.value(x) … });
template <class F>
decltype(auto) with_activation(const std::string& name, F&& f) {
  if (name == "none") return f(Identity{});
  if (name == "relu") return f(Relu{});
  if (name == "gelu") return f(Gelu{});
  if (name == "gelu_tanh") return f(GeluTanh{});
  if (name == "silu") return f(Silu{});
  fail("there is no activation '{}'; expected none, relu, gelu, gelu_tanh or silu", name);
}

}  // namespace trireme::ops
