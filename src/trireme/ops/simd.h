#pragma once
// The x86-64-v3 and v4 levels lack AES, which Highway's targets otherwise insist on and nothing here uses.
#ifndef __AES__
#define HWY_DISABLE_PCLMUL_AES
#endif
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trireme/core/dtype.h"

// Arrays of any compute type (f32, bf16, f16) seen as f32 vectors: arithmetic is always done in f32, storage is what
// the tensor has. Vectors have the widest length of the instruction set the library is compiled for.
//
//   simd::map(n, y, [](auto x) { return simd::tanh(x); }, x);      // y[i] = tanh(x[i]), tails included
//
// The functions are accurate to about 1e-7 relative (one or two units in the last place) over all of f32.
namespace trireme::ops::simd {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;
inline constexpr Tag kTag;
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(kTag));

namespace detail {

using IntTag = hn::RebindToSigned<Tag>;
using BitsTag = hn::RebindToUnsigned<Tag>;
using HalfTag = hn::Rebind<std::uint16_t, Tag>;
using Half = hn::Vec<HalfTag>;

// The types whose in-memory words are 16 bits wide, seen as such.
inline const std::uint16_t* words(const BFloat16* p) { return reinterpret_cast<const std::uint16_t*>(p); }
inline const std::uint16_t* words(const Float16* p) { return reinterpret_cast<const std::uint16_t*>(p); }
inline std::uint16_t* words(BFloat16* p) { return reinterpret_cast<std::uint16_t*>(p); }
inline std::uint16_t* words(Float16* p) { return reinterpret_cast<std::uint16_t*>(p); }

HWY_INLINE Vec widen(Half half, const BFloat16*) {
  return hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(BitsTag{}, half)));
}
#if HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4
// These processors have no F16C, without which Highway 1.0 makes finite numbers of infinities and truncates where it
// should round: elements are converted one by one.
HWY_INLINE Vec widen(Half half, const Float16*) {
  alignas(64) Float16 from[static_cast<std::size_t>(kLanes)];
  alignas(64) float to[static_cast<std::size_t>(kLanes)];
  hn::Store(half, HalfTag{}, words(from));
  for (std::int64_t i = 0; i < kLanes; ++i) to[i] = static_cast<float>(from[i]);
  return hn::Load(kTag, to);
}
HWY_INLINE Half narrow(Vec v, const Float16*) {
  alignas(64) float from[static_cast<std::size_t>(kLanes)];
  alignas(64) Float16 to[static_cast<std::size_t>(kLanes)];
  hn::Store(v, kTag, from);
  for (std::int64_t i = 0; i < kLanes; ++i) to[i] = Float16(from[i]);
  return hn::Load(HalfTag{}, words(to));
}
#else
HWY_INLINE Vec widen(Half half, const Float16*) {
  return hn::PromoteTo(kTag, hn::BitCast(hn::Rebind<hwy::float16_t, Tag>{}, half));
}
HWY_INLINE Half narrow(Vec v, const Float16*) {
  return hn::BitCast(HalfTag{}, hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag>{}, v));
}
#endif

// Rounds to nearest even and keeps NaN a NaN, as BFloat16 itself does.
HWY_INLINE Half narrow(Vec v, const BFloat16*) {
  constexpr BitsTag bits;
  const auto u = hn::BitCast(bits, v);
  const auto top = hn::ShiftRight<16>(u);
  const auto rounded = hn::ShiftRight<16>(u + hn::Set(bits, 0x7fffU) + (top & hn::Set(bits, 1U)));
  const auto nan = hn::RebindMask(bits, hn::IsNaN(v));
  return hn::TruncateTo(HalfTag{}, hn::IfThenElse(nan, top | hn::Set(bits, 0x40U), rounded));
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* p, std::int64_t n) {
#if HWY_TARGET <= HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
#else
  // Only AVX-512 has masked accesses of every width that cannot fault; elsewhere the tail goes through the stack.
  alignas(64) T buffer[static_cast<std::size_t>(kLanes)] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(n) * sizeof(T));
  return hn::Load(d, buffer);
#endif
}

template <class D, class T>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* p, std::int64_t n) {
#if HWY_TARGET <= HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
#else
  alignas(64) T buffer[static_cast<std::size_t>(kLanes)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<std::size_t>(n) * sizeof(T));
#endif
}

}  // namespace detail

// kLanes elements from any address.
HWY_INLINE Vec load(const float* p) { return hn::LoadU(kTag, p); }
template <class T>
HWY_INLINE Vec load(const T* p) {
  return detail::widen(hn::LoadU(detail::HalfTag{}, detail::words(p)), p);
}
HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, kTag, p); }
template <class T>
HWY_INLINE void store(Vec v, T* p) {
  hn::StoreU(detail::narrow(v, p), detail::HalfTag{}, detail::words(p));
}

// The first n elements, 0 <= n <= kLanes; nothing beyond them is touched. Lanes past n load as zero.
HWY_INLINE Vec load_n(const float* p, std::int64_t n) { return n == kLanes ? load(p) : detail::load_first(kTag, p, n); }
template <class T>
HWY_INLINE Vec load_n(const T* p, std::int64_t n) {
  if (n == kLanes) return load(p);
  return detail::widen(detail::load_first(detail::HalfTag{}, detail::words(p), n), p);
}
HWY_INLINE void store_n(Vec v, float* p, std::int64_t n) {
  if (n == kLanes) return store(v, p);
  detail::store_first(v, kTag, p, n);
}
template <class T>
HWY_INLINE void store_n(Vec v, T* p, std::int64_t n) {
  if (n == kLanes) return store(v, p);
  detail::store_first(detail::narrow(v, p), detail::HalfTag{}, detail::words(p), n);
}

// As if stored as T and loaded again.
template <class T>
HWY_INLINE Vec rounded(Vec v) {
  if constexpr (std::is_same_v<T, float>)
    return v;
  else
    return detail::widen(detail::narrow(v, static_cast<const T*>(nullptr)), static_cast<const T*>(nullptr));
}

HWY_INLINE Vec set(float value) { return hn::Set(kTag, value); }
HWY_INLINE Vec zero() { return hn::Zero(kTag); }
HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(kTag, v)); }
HWY_INLINE float max(Vec v) { return hn::GetLane(hn::MaxOfLanes(kTag, v)); }

// v with the lanes from n on replaced by `other`.
HWY_INLINE Vec keep_n(Vec v, std::int64_t n, float other) {
  return hn::IfThenElse(hn::FirstN(kTag, static_cast<std::size_t>(n)), v, set(other));
}

// c[0] + c[1]·x + c[2]·x² + …
template <class... C>
HWY_INLINE Vec polynomial(Vec x, float first, C... rest) {
  if constexpr (sizeof...(rest) == 0)
    return set(first);
  else
    return hn::MulAdd(polynomial(x, rest...), x, set(first));
}

HWY_INLINE Vec exp(Vec x) {
  constexpr detail::IntTag integers;
  // Past these bounds the result is infinite or zero anyway; written so that NaN passes through.
  x = hn::IfThenElse(hn::Gt(x, set(89.0F)), set(89.0F), x);
  x = hn::IfThenElse(hn::Lt(x, set(-104.0F)), set(-104.0F), x);
  const Vec n = hn::Round(x * set(1.44269504F));
  Vec r = hn::NegMulAdd(n, set(0.693145751953125F), x);  // ln 2 in two parts: the first one times n is exact
  r = hn::NegMulAdd(n, set(1.42860677e-6F), r);
  const Vec p = polynomial(r, 0.49999994F, 0.16666520F, 0.041668393F, 0.0083687808F, 0.0013814467F);
  const Vec e = hn::MulAdd(p, r * r, r) + set(1.0F);
  // 2^n in two factors, so that neither leaves the range of exponents when the result is subnormal.
  const auto k = hn::ConvertTo(integers, n);
  const auto half = hn::ShiftRight<1>(k);
  const auto power = [&](auto i) { return hn::BitCast(kTag, hn::ShiftLeft<23>(i + hn::Set(integers, 127))); };
  return e * power(half) * power(k - half);
}

HWY_INLINE Vec sigmoid(Vec x) { return set(1.0F) / (set(1.0F) + exp(hn::Neg(x))); }

HWY_INLINE Vec tanh(Vec x) {
  const Vec a = hn::Abs(x);
  const Vec s = x * x;
  const Vec small = polynomial(s, -0.33333263F, 0.13330899F, -0.053692967F, 0.020483313F, -0.0055286307F);
  const Vec large = set(1.0F) - set(2.0F) / (exp(a + a) + set(1.0F));
  return hn::IfThenElse(hn::Lt(a, set(0.65F)), hn::MulAdd(small * s, x, x), hn::CopySignToAbs(large, x));
}

HWY_INLINE Vec erf(Vec x) {
  const Vec a = hn::Abs(x);
  const Vec small = polynomial(x * x, 0.12837917F, -0.37612626F, 0.112836003F, -0.026854444F, 0.0051895357F,
                               -0.00080208422F, 7.8891229e-5F);
  // ln(erfc) is close to a polynomial; past 4.1 the result is 1.
  const Vec t = hn::IfThenElse(hn::Gt(a, set(4.1F)), set(4.1F), a);
  const Vec log_erfc = polynomial(t, -0.00035371602F, -1.12704003F, -0.63822567F, -0.103037387F, 0.021805327F,
                                  -0.0029396096F, 0.00018557423F);
  const Vec large = hn::CopySignToAbs(set(1.0F) - exp(log_erfc), x);
  return hn::IfThenElse(hn::Lt(a, set(1.0F)), hn::MulAdd(small, x, x), large);
}

// out[i] = f(in[i]…) for i in [0, n), in one pass. An input may be the output's own array.
template <class Out, class F, class... In>
HWY_INLINE void map(std::int64_t n, Out* out, F&& f, const In*... in) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(f(load(in + i)...), out + i);
  if (i < n) store_n(f(load_n(in + i, n - i)...), out + i, n - i);
}

// Calls body(i, count) for each vector of [0, n): count is kLanes, and what is left at the end. For loops with several
// outputs or reductions; once inlined, load_n and store_n cost nothing over load and store where count is kLanes.
template <class F>
HWY_INLINE void for_vectors(std::int64_t n, F&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

// Elements per task of a bandwidth-bound kernel: 32 KiB of f32, so that a task's arrays stay in the first two caches
// and small tensors still spread over the threads.
inline constexpr std::int64_t kBlock = 8192;

}  // namespace trireme::ops::simd
