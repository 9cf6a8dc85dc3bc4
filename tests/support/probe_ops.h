#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::testing {

// The builtin ops and a few that exist for tests alone:
//   probe(x, y?, z?) flag=false count=0 ratio=0.0 label="" dims=[] → x's type
//   pair(x) → x's type, f32[]
//   together(xs…) → the first one's type
//   twice(x) factor=2.0 → composite: add(x, x)
//   single(x), many(x, y?), many_shared(x) → x's type: for CUDA alone and never run; many are launched together, with a
//     workspace of which one is enough for all
ir::Registry probe_registry();

}  // namespace trireme::testing
