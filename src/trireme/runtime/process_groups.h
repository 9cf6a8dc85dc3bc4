#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/device/group.h"
#include "trireme/ir/mesh.h"

namespace trireme::runtime {

// One rank's coordinate, and its communicators: one for each group of the run that it is a member of.
class ProcessGroups {
 public:
  // This rank's place in one group of the run's table (program/group.h): ranks with equal colors meet, in the order of
  // their keys. A negative color: it is no member.
  struct Seat {
    std::vector<std::string> axes;
    int color = -1;
    int key = 0;
    std::string messages = {};
  };
  struct Options {
    comm::Algorithm algorithm = comm::Algorithm::automatic;
    bool nccl = false;  // between GPUs
  };
  // Collective over `world`: all ranks of the run give the same groups in the same order.
  ProcessGroups(ir::Mesh mesh, std::vector<int> coordinate, comm::Communicator& world, std::span<const Seat> seats,
                Options options);

  const ir::Mesh& mesh() const { return mesh_; }
  // Along each axis of the mesh.
  const std::vector<int>& coordinate() const { return coordinate_; }
  comm::Algorithm algorithm() const { return options_.algorithm; }

  // The ranks that differ from this one along an axis alone, or along several: "dp+tp".
  comm::Communicator& group(std::string_view axis) const;
  // The same ranks, for what is in a device's memory.
  comm::DeviceGroup& device_group(std::string_view axis, device::Kind kind);
  // The ranks that send and receive such messages: of two stages, the one that sends comes first. Throws where the
  // table has no such group.
  comm::Communicator& messages(std::string_view group) const;
  // The same, for what is in a device's memory.
  comm::DeviceGroup& device_messages(std::string_view group, device::Kind kind);
  // Waits for the streams; throws when another rank has failed, instead of waiting for it (comm/device/group.h).
  void synchronize(device::Streams& streams, device::Streams::Set of = device::Streams::kAll) const;
  // After a failure of this rank: no stream waits for the others any more.
  void abandon() noexcept;
  // Bytes sent to other ranks so far.
  std::uint64_t sent_bytes() const;

 private:
  struct Entry {
    std::vector<std::string> axes;
    std::unique_ptr<comm::Communicator> communicator;
    std::unique_ptr<comm::DeviceGroup> device_group;  // null: not asked for
    std::string messages;
  };
  std::size_t find(std::string_view axis) const;
  std::size_t find_messages(std::string_view group) const;
  comm::DeviceGroup& device_group(Entry& entry, device::Kind kind);

  ir::Mesh mesh_;
  std::vector<int> coordinate_;
  Options options_;
  std::vector<Entry> entries_;
  std::vector<comm::DeviceGroup*> device_groups_;  // those that were asked for
};

}  // namespace trireme::runtime
