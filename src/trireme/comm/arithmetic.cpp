#include "trireme/comm/arithmetic.h"

// The x86-64-v3 and v4 levels lack AES, which Highway's targets otherwise insist on and nothing here uses.
#ifndef __AES__
#define HWY_DISABLE_PCLMUL_AES
#endif
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace trireme::comm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What a block is accumulated in: a few KiB, so that it and the same block of every rank stay in the first caches.
constexpr std::int64_t kBlockBytes = 4096;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> kHalves;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(kFloats));
// Without F16C, Highway 1.0 makes finite numbers of infinities and truncates where it should round.
constexpr bool kConvertsVectors = !(HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4);

template <bool /*kVectors*/ = true>
void widen(const BFloat16* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
template <bool /*kVectors*/ = true>
void narrow(const float* from, std::int64_t count, BFloat16* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]);
}

template <bool kVectors = kConvertsVectors>
void widen(const Float16* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; kVectors && i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::PromoteTo(kFloats, hn::LoadU(kHalves, reinterpret_cast<const hwy::float16_t*>(from + i))), kFloats,
               to + i);
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
template <bool kVectors = kConvertsVectors>
void narrow(const float* from, std::int64_t count, Float16* to) {
  std::int64_t i = 0;
  for (; kVectors && i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::DemoteTo(kHalves, hn::LoadU(kFloats, from + i)), kHalves, reinterpret_cast<hwy::float16_t*>(to + i));
  for (; i < count; ++i) to[i] = Float16(from[i]);
}

// Integers wrap: signed ones take the detour through unsigned, where that is defined. (Types narrower than int are
// computed in unsigned int, not in int, whose product could overflow.)
template <class T>
struct Wrapping {
  using U = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
  static T add(T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }
  static T multiply(T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); }
};

template <Reduce kReduce, class T>
T apply(T a, T b) {
  if constexpr (kReduce == Reduce::max) {
    if constexpr (std::is_floating_point_v<T>)
      return b > a || std::isnan(b) ? b : a;
    else
      return b > a ? b : a;
  } else if constexpr (kReduce == Reduce::min) {
    if constexpr (std::is_floating_point_v<T>)
      return b < a || std::isnan(b) ? b : a;
    else
      return b < a ? b : a;
  } else if constexpr (std::is_floating_point_v<T>) {
    return kReduce == Reduce::prod ? a * b : a + b;
  } else {
    return kReduce == Reduce::prod ? Wrapping<T>::multiply(a, b) : Wrapping<T>::add(a, b);
  }
}

template <Reduce kReduce, class T>
void apply_block(T* into, const T* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) into[i] = apply<kReduce>(into[i], from[i]);
}

template <class T>
void divide(T* data, std::int64_t count, int ranks) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(data[i] / static_cast<T>(ranks));
}
// Narrow integers cannot hold every number of ranks.
template <class T>
requires std::is_integral_v<T>
void divide(T* data, std::int64_t count, int ranks) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(static_cast<std::int64_t>(data[i]) / ranks);
}

template <class T>
const Accumulator<T>* as_accumulator(const T* from, std::int64_t count, Accumulator<T>* buffer) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    return from;
  } else {
    widen(from, count, buffer);
    return buffer;
  }
}

template <Reduce kReduce, class T, bool kVectors = kConvertsVectors>
void combine_typed(T* into, const T* from, std::int64_t count) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, A>) {
    apply_block<kReduce>(into, from, count);
  } else {
    constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(A));
    alignas(64) A left[kBlock];
    alignas(64) A right[kBlock];
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, count - begin);
      widen<kVectors>(into + begin, n, left);
      widen<kVectors>(from + begin, n, right);
      apply_block<kReduce>(left, right, n);
      narrow<kVectors>(left, n, into + begin);
    }
  }
}

// A few ranks, each of which gets the result where its data was: one pass through registers.
template <Reduce kReduce, int kRanks, class T>
void combine_in_place(void* const* tensors, std::int64_t count) {
  T* data[kRanks];
  for (int r = 0; r < kRanks; ++r) data[r] = static_cast<T*>(tensors[r]);
#pragma GCC ivdep  // no two of them overlap
  for (std::int64_t i = 0; i < count; ++i) {
    T value = data[0][i];
    for (int r = 1; r < kRanks; ++r) value = apply<kReduce>(value, data[r][i]);
    if constexpr (kReduce == Reduce::mean) value = value / T{kRanks};
    for (int r = 0; r < kRanks; ++r) data[r][i] = value;
  }
}

template <Reduce kReduce, class T>
bool combine_few(std::span<const void* const> sources, std::span<void* const> targets, std::int64_t count) {
  if (!std::equal(sources.begin(), sources.end(), targets.begin(), targets.end())) return false;
  switch (sources.size()) {
    case 2: combine_in_place<kReduce, 2, T>(targets.data(), count); return true;
    case 3: combine_in_place<kReduce, 3, T>(targets.data(), count); return true;
    case 4: combine_in_place<kReduce, 4, T>(targets.data(), count); return true;
    default: return false;
  }
}

template <Reduce kReduce, class T>
void combine_all_typed(std::span<const void* const> sources, std::span<void* const> targets, std::int64_t count) {
  using A = Accumulator<T>;
  if constexpr (std::is_floating_point_v<T>)
    if (combine_few<kReduce, T>(sources, targets, count)) return;
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(A));
  alignas(64) A sum[kBlock];
  alignas(64) A other[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
    const A* first = as_accumulator(static_cast<const T*>(sources[0]) + begin, n, sum);
    if (first != sum) std::memcpy(sum, first, static_cast<std::size_t>(n) * sizeof(A));
    for (std::size_t s = 1; s < sources.size(); ++s)
      apply_block<kReduce>(sum, as_accumulator(static_cast<const T*>(sources[s]) + begin, n, other), n);
    if constexpr (kReduce == Reduce::mean) divide(sum, n, static_cast<int>(sources.size()));
    T* const to = static_cast<T*>(targets[0]) + begin;
    if constexpr (std::is_same_v<T, A>)
      std::memcpy(to, sum, bytes);
    else
      narrow(sum, n, to);
    for (std::size_t t = 1; t < targets.size(); ++t) std::memcpy(static_cast<T*>(targets[t]) + begin, to, bytes);
  }
}

// Calls f with the reduction as a constant.
template <class F>
void with_reduce(Reduce reduce, F&& f) {
  switch (reduce) {
    case Reduce::sum: return f(std::integral_constant<Reduce, Reduce::sum>{});
    case Reduce::mean: return f(std::integral_constant<Reduce, Reduce::mean>{});
    case Reduce::max: return f(std::integral_constant<Reduce, Reduce::max>{});
    case Reduce::min: return f(std::integral_constant<Reduce, Reduce::min>{});
    case Reduce::prod: return f(std::integral_constant<Reduce, Reduce::prod>{});
  }
}

}  // namespace

void combine(void* into, const void* from, std::int64_t count, DType dtype, Reduce reduce) {
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    with_reduce(reduce,
                [&](auto r) { combine_typed<r.value>(static_cast<T*>(into), static_cast<const T*>(from), count); });
  });
}

void combine_portably(Float16* into, const Float16* from, std::int64_t count, Reduce reduce) {
  with_reduce(reduce, [&](auto r) { combine_typed<r.value, Float16, false>(into, from, count); });
}

void finish(void* data, std::int64_t count, DType dtype, Reduce reduce, int ranks) {
  if (reduce != Reduce::mean || ranks == 1) return;
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    T* const values = static_cast<T*>(data);
    if constexpr (std::is_same_v<T, A>) {
      divide(values, count, ranks);
    } else {
      constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(A));
      alignas(64) A block[kBlock];
      for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, count - begin);
        widen(values + begin, n, block);
        divide(block, n, ranks);
        narrow(block, n, values + begin);
      }
    }
  });
}

void combine_all(std::span<const void* const> sources, std::span<void* const> targets, std::int64_t count, DType dtype,
                 Reduce reduce) {
  if (count == 0 || targets.empty()) return;
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    with_reduce(reduce, [&](auto r) { combine_all_typed<r.value, T>(sources, targets, count); });
  });
}

}  // namespace trireme::comm
