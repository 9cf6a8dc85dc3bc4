#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

#include "trireme/comm/communicator.h"

// What every transport must do, tested once for all. The transport under test is that of TRIREME_TEST_TRANSPORT:
// threads (the default), emulated, or mpi, where the test program itself is one of the ranks that mpirun started and
// every rank runs the same tests.
namespace trireme::comm::conformance {

// The rank counts that can be tested here: 1 to 9, or to the number of processes.
std::vector<int> rank_counts();

// Runs `body` on `ranks` ranks.
void over(int ranks, const std::function<void(Communicator&)>& body);

// A small value that differs by rank and place. Sums and products over nine ranks are exact in every dtype.
template <class T>
T value(int rank, std::int64_t i, Reduce reduce) {
  const std::int64_t mixed = rank * 7 + i * 3 + i / 5;
  const std::int64_t v = reduce == Reduce::prod ? 1 + mixed % 2 : mixed % 7;
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(v - 2));
  else
    return static_cast<T>(std::is_unsigned_v<T> ? v : v - 2);
}

// The result of reducing value() over `ranks`, computed one after the other in f64 or int64.
template <class T>
T reduced(int ranks, std::int64_t i, Reduce reduce) {
  constexpr bool kHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  const auto widen = [](T v) {
    if constexpr (kHalf)
      return static_cast<double>(static_cast<float>(v));
    else
      return static_cast<Wide>(v);
  };
  Wide all = widen(value<T>(0, i, reduce));
  for (int r = 1; r < ranks; ++r) {
    const Wide v = widen(value<T>(r, i, reduce));
    switch (reduce) {
      case Reduce::sum:
      case Reduce::mean: all += v; break;
      case Reduce::max: all = std::max(all, v); break;
      case Reduce::min: all = std::min(all, v); break;
      case Reduce::prod: all *= v; break;
    }
  }
  if constexpr (kHalf) {
    return T(reduce == Reduce::mean ? static_cast<float>(all) / static_cast<float>(ranks) : static_cast<float>(all));
  } else {
    // Narrow integers wrap on the way.
    const T sum = static_cast<T>(all);
    if (reduce != Reduce::mean) return sum;
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::int64_t>(sum) / ranks);
    else
      return sum / static_cast<T>(ranks);
  }
}

inline constexpr std::array<DType, 9> kDTypes = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                                                 DType::u8,  DType::u16, DType::i32, DType::i64};
inline constexpr std::array<Reduce, 5> kReduces = {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min, Reduce::prod};
inline constexpr std::array<Algorithm, 7> kAlgorithms = {Algorithm::automatic, Algorithm::native, Algorithm::sequential,
                                                         Algorithm::parallel,  Algorithm::ring,   Algorithm::recursive,
                                                         Algorithm::tree};

template <class T>
bool same_bits(const T& a, const T& b) {
  using Bits = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

}  // namespace trireme::comm::conformance
