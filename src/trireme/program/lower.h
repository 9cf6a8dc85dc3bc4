#pragma once
#include "trireme/program/collectives.h"
#include "trireme/program/copies.h"
#include "trireme/program/program.h"
#include "trireme/program/weight_gradients.h"

namespace trireme::program {

struct LowerOptions {
  std::string name = "step";
  std::string body = "micro";  // run once per micro-batch
  std::string tail = {};       // run once after them ("update"); empty: none
  int micro_batches = 1;
  int threads = 1;
  device::Kind device = {};
  bool reuse_in_place = true;  // off: outputs never share a dying input's buffer
  CopyOptions copies = {};     // between memory tiers
  CollectiveOptions collectives = {};
  WeightGradientOptions weight_gradients = {};
};

// Turns graphs into a rank's program: micro-batches unrolled, views resolved, sums accumulated into their state's
// buffer (by the kernel itself where it can), buffers of dying inputs reused where the op allows, a workspace where the
// kernel asks for one, copies to and from other tiers, collectives and, if asked for, weights' gradients beside the
// computation, and every byte placed.
// Throws when an op has no kernel for its types on the device.
Program lower(const ir::Module& module, const StateLayout& layout, const LowerOptions& options);

}  // namespace trireme::program
