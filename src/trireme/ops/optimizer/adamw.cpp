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

std::vector<ir::Value> adamw(ir::Value param, ir::Value grad, ir::Value m, ir::Value v, ir::Value lr, ir::Value step,
                             ir::Value clip, ir::Value finite, const AdamW& options) {
  return ir::apply("adamw", {param, grad, m, v, lr, step, clip, finite},
                   {{"beta1", options.beta1},
                    {"beta2", options.beta2},
                    {"eps", options.eps},
                    {"weight_decay", options.weight_decay},
                    {"low", options.low}});
}

}  // namespace trireme::ops
