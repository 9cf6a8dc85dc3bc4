#pragma once
#include <trireme/float16.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, u8, u16, i32, i64 };

std::size_t size_of(DType dtype);
const char* name_of(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);
bool is_float(DType dtype);

// Calls `f` with a value of the C++ type that stores `dtype`:
//   dispatch(dtype, [&](auto zero) { using T = decltype(zero); … });
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::f16: return f(Float16{});
    case DType::bf16: return f(BFloat16{});
    case DType::i8: return f(std::int8_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: break;
  }
  return f(std::int64_t{});
}

// The same for the types that activations and gradients may have: f32, bf16, f16.
[[noreturn]] void not_a_compute_type(DType dtype);
template <class F>
decltype(auto) dispatch_compute(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(BFloat16{});
    case DType::f16: return f(Float16{});
    default: not_a_compute_type(dtype);
  }
}

}  // namespace trireme
