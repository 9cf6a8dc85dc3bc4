#include "trireme/runtime/membership.h"

#include "trireme/core/error.h"

namespace trireme::runtime {

Membership::Membership(ir::Mesh over, comm::Communicator& world, comm::Algorithm how)
    : mesh(std::move(over)), place(mesh.coordinate(world.rank())), algorithm(how) {
  if (world.size() != mesh.ranks())
    fail("mesh '{}' has {} ranks, and {} were started", mesh.str(), mesh.ranks(), world.size());
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    // Ranks with equal places along all other axes.
    std::vector<int> first = place;
    first[axis] = 0;
    groups.push_back(world.split(mesh.rank_at(first), place[axis]));
  }
}

namespace {

std::size_t index_of(const ir::Mesh& mesh, std::string_view axis) {
  for (std::size_t i = 0; i < mesh.axes.size(); ++i)
    if (mesh.axes[i].name == axis) return i;
  fail("mesh '{}' has no axis '{}'", mesh.str(), axis);
}

}  // namespace

comm::Communicator& Membership::group(std::string_view axis) const { return *groups[index_of(mesh, axis)]; }

comm::DeviceGroup& Membership::device_group(std::string_view axis, device::Kind kind) {
  device_groups.resize(groups.size());
  const std::size_t i = index_of(mesh, axis);
  if (!device_groups[i]) device_groups[i] = comm::DeviceGroup::over(*groups[i], kind, nccl);
  return *device_groups[i];
}

std::uint64_t Membership::sent_bytes() const {
  std::uint64_t sum = everyone ? everyone->counters().sent : 0;
  for (const auto& group : groups) sum += group->counters().sent;
  for (const auto& group : device_groups) sum += group ? group->sent() : 0;
  return sum;
}

}  // namespace trireme::runtime
