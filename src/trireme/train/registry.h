#pragma once
#include "trireme/models/families.h"
#include "trireme/ops/all.h"

namespace trireme::train {

// What graphs and configurations may name: an ordinary value. Users add their own ops and models to a copy.
struct Registry {
  ir::Registry ops = ops::builtin();
  models::Families models = models::builtin_families();
};

}  // namespace trireme::train
