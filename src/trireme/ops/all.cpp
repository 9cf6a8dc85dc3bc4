#include "trireme/ops/all.h"

namespace trireme::ops {

ir::Registry builtin() {
  ir::Registry registry;
  return registry;
}

}  // namespace trireme::ops
