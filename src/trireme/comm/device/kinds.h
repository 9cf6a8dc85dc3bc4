#pragma once
#include <memory>

#include "trireme/comm/device/group.h"

namespace trireme::comm {

// Of ranks that compute on the CPU.
std::unique_ptr<DeviceGroup> host_group(Communicator& group);

// Of ranks that are threads of one process.
std::unique_ptr<DeviceGroup> shared_group(Communicator& group);

// Of any others: through the host's memory.
std::unique_ptr<DeviceGroup> staged_group(Communicator& group, device::Kind kind);

// Of ranks with a GPU each. Collective.
std::unique_ptr<DeviceGroup> nccl_group(Communicator& group);

}  // namespace trireme::comm
