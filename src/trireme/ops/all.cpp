#include "trireme/ops/all.h"

#include "trireme/ops/attention/attention.h"

namespace trireme::ops {

ir::Registry builtin() {
  ir::Registry registry;
  registry.add(attention_def());
  registry.add(attention_grad_def());
  return registry;
}

}  // namespace trireme::ops
