#include "trireme/ops/optimizer/adamw.h"

#include "trireme/ops/optimizer/cpu_kernels.h"
#include "trireme/ops/optimizer/optimizer.h"

namespace trireme::ops {

ir::OpDef adamw_def() {
  ir::OpDef def = update_rule("adamw", {"param", "grad", "m", "v"}, {"lr", "step", "clip", "finite"}, 14,
                              {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.0}});
  on_cpu(def, prepare_adamw_cpu);
  return def;
}

}  // namespace trireme::ops
