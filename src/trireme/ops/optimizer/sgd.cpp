#include "trireme/ops/optimizer/sgd.h"

#include "trireme/ops/optimizer/cpu_kernels.h"
#include "trireme/ops/optimizer/optimizer.h"

namespace trireme::ops {

ir::OpDef sgd_def() {
  ir::OpDef def = update_rule("sgd", {"param", "grad", "momentum"}, {"lr", "clip", "finite"}, 6,
                              {{"momentum", 0.9}, {"weight_decay", 0.0}});
  on_cpu(def, prepare_sgd_cpu);
  return def;
}

}  // namespace trireme::ops
