#pragma once
#include "support/op_check.h"

namespace trireme::testing {

// Output 0 of a kernel prepared to accumulate is what was there plus the reference, for one thread and for three, with
// the same bits. For ops whose traits say `accumulates`.
void check_accumulates(const OpCase& c);

}  // namespace trireme::testing
