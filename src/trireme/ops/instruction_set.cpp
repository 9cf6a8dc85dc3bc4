#include "trireme/ops/instruction_set.h"

#include "trireme/ops/simd.h"

namespace trireme::ops {

const char* instruction_set() {
#if HWY_ARCH_X86
  if constexpr (HWY_TARGET <= HWY_AVX3) return "AVX-512";
#endif
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace trireme::ops
