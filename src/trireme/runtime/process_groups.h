#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/device/group.h"
#include "trireme/ir/mesh.h"

namespace trireme::runtime {

// A rank's place among the ranks of a mesh, and its communicators: one for each axis, with the ranks that differ from
// it along that axis alone.
struct Membership {
  // Collective over `world`, whose ranks are the mesh's.
  Membership(ir::Mesh over, comm::Communicator& world, comm::Algorithm how);

  comm::Communicator& group(std::string_view axis) const;
  // The same ranks, for what is in a device's memory.
  comm::DeviceGroup& device_group(std::string_view axis, device::Kind kind);
  // Bytes sent to other ranks so far.
  std::uint64_t sent_bytes() const;

  ir::Mesh mesh;
  std::vector<int> place;  // along each axis
  comm::Algorithm algorithm;
  std::vector<std::unique_ptr<comm::Communicator>> groups;             // by axis
  std::vector<std::unique_ptr<comm::DeviceGroup>> device_groups = {};  // alike; null: not asked for
  bool nccl = false;                                                   // that is how device groups are made
  // To push and pull by: all ranks, of the mesh and beyond, and the number of the first beyond. Null: none is.
  std::unique_ptr<comm::Communicator> everyone;
  int first_peer = 0;
};

}  // namespace trireme::runtime
