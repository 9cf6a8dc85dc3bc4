#pragma once
#include <span>

#include "trireme/device/kernel.h"

namespace trireme::device {

// A kernel that can do the work of several launches of its op at once, where each alone would leave a GPU idle: the
// updates of many small tensors. The members may be prepared for different types and sizes. An op whose kernel is one
// says so (ir::KernelDef::groups).
class GroupKernel : public Kernel {
 public:
  // `launches[i]` is the one of `members[i]`, this being the first of them; nothing that one writes is touched by
  // another, workspaces apart where the op's kernels share one.
  virtual void launch_group(std::span<GroupKernel* const> members, std::span<const Launch> launches) = 0;
  void launch(const Launch& launch) override {
    GroupKernel* self = this;
    launch_group({&self, 1}, {&launch, 1});
  }
};

}  // namespace trireme::device
