#pragma once
#include <memory>

#include "trireme/comm/device/group.h"

namespace trireme::comm {

// Collectives of ranks that compute on the CPU: `group` runs them itself.
std::unique_ptr<DeviceGroup> host_group(Communicator& group);

// Collectives of ranks that are threads of one process: each rank reads the device memory of the others.
std::unique_ptr<DeviceGroup> shared_group(Communicator& group);

// Collectives of ranks in several processes: bytes are copied to the host's memory, which `group` communicates.
std::unique_ptr<DeviceGroup> staged_group(Communicator& group, device::Kind kind);

// Collectives over NCCL. Each rank has a GPU of its own, and all ranks make this call.
std::unique_ptr<DeviceGroup> nccl_group(Communicator& group);

}  // namespace trireme::comm
