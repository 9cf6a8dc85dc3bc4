#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The largest elements of a tensor, as values and where they belong.
namespace trireme::ops {

// take_largest(x, velocity f32, waiting? f32, times? f32[]) decay=0.9 count=1 mask=false
//   → taken u8[1,bytes], velocity' f32 [, waiting' f32, where waiting is given]
//
//   velocity' = decay · velocity + times · x;  waiting' = waiting + velocity'
//   taken = the `count` elements of waiting' that are largest in magnitude (of equals, those that come first);
//   there, waiting' becomes 0, and with `mask` velocity' too
// Without `waiting` they are taken from velocity', which stays. NaN counts as the largest of all. x is f32, bf16 or f16
// and has as many elements as the others.
ir::OpDef take_largest_def();

// add_taken(taken u8[parts,bytes]) count=1 shape=[…] → f32 of that shape: zeros, and the sum of what was taken.
ir::OpDef add_taken_def();

// How what was taken of a tensor is laid out: for each 65536 elements how many of them (i32), the values in order
// (f32), and of each the index within those elements (u16).
struct TakenLayout {
  TakenLayout(std::int64_t elements, std::int64_t count);
  static constexpr std::int64_t kSegment = 65536;
  std::int64_t segments;
  std::int64_t values;   // where they begin
  std::int64_t indices;  // where they begin
  std::int64_t bytes;    // a multiple of 4
};

std::shared_ptr<device::Kernel> prepare_take_largest_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_taken_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
