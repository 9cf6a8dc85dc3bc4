#pragma once
#include <vector>

#include "trireme/ir/builder.h"

namespace trireme::ops {

// Rotary position embedding, in the convention of Hugging Face's models: element i of a head's first half turns with
// element i of its second half, by the angle (offset + position) · frequency(i). In place.
//
//   operands    x [b,s,h,d] with d even; offset? i32 []: the position of row 0
//   attributes  theta = 10000.0: frequency(i) = theta^(−2i/d)
//               inverse = false: turn back; the gradient is the inverse turn
//               scaling = "none" | "linear" (frequencies divided by factor) | "llama3" (long waves divided by factor,
//               short ones kept, blended between), with factor = 1.0, low = 1.0, high = 4.0, original = 8192
//   output      y like x
ir::OpDef rotary_def();

// frequency(i) for i in [0, dim/2) under the op's attributes.
std::vector<double> rotary_frequencies(std::int64_t dim, const ir::Attributes& attributes);

std::shared_ptr<device::Kernel> prepare_rotary_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
