#pragma once
#include <span>
#include <string>

#include "trireme/ir/op_def.h"

namespace trireme::ops {

// random_init(seed i64[], places… i64[]) kind="normal"|"uniform"|"constant"|"zeros" a=0.0 site=0 shape=[] dtype="f32",
// and the attributes of a RandomWindow → value
//
// normal: mean 0 and deviation a; uniform: in [−a, a); constant: a. A pure function of (seed, site, element's index in
// the whole tensor), so every shard of the tensor can be made alone and gives the same numbers: the window says which
// elements these are. There are zeros beyond the tensor's end.
ir::OpDef random_init_def();

// Elements [first, first + out.size()) of what random_init gives in f32: the same numbers, wherever they are needed.
void random_elements(const std::string& kind, double a, std::uint64_t seed, std::uint64_t site, std::int64_t first,
                     std::span<float> out);

}  // namespace trireme::ops
