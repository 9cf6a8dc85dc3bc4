#pragma once
#include <cstdlib>
#include <memory>

#include "trireme/device/cpu/onednn.h"

// The memory that oneDNN's kernels are given: functions of the shape alone, so that a program has the same bytes on
// every CPU. What the library asks for depends on the instruction set, here and there on the size of a cache; these are
// bounds of it, found by asking for many shapes under each instruction set, and held by allowance_test.cpp. They cover
// every product, and every convolution without groups for which the library has a direct kernel.
namespace trireme::device::cpu {

inline std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
inline std::size_t line_bytes(std::int64_t elements, DType dtype) {
  return whole_lines(static_cast<std::size_t>(elements) * size_of(dtype));
}

// What a kernel keeps for itself where the library wants more than the allowance. Throws where there is no room for it.
using OwnLines = std::unique_ptr<void, decltype(&std::free)>;
OwnLines allocate_lines(std::size_t bytes);

// oneDNN's blocked kernel wants every matrix dense; for others the library turns to a kernel that allocates its packing
// buffers in each call. So rows of a matrix that is not dense are copied together first, in scratch.
struct GemmCopies {
  explicit GemmCopies(const GemmSpec& spec);
  bool a = false, b = false, c = false;
  std::size_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
  std::size_t bytes() const { return a_bytes + b_bytes + c_bytes; }
};

}  // namespace trireme::device::cpu
