#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// Every op that ships with Trireme. Users add their own to the copy they get.
ir::Registry builtin();

}  // namespace trireme::ops
