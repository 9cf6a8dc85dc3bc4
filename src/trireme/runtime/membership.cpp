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

comm::Communicator& Membership::group(std::string_view axis) const {
  for (std::size_t i = 0; i < mesh.axes.size(); ++i)
    if (mesh.axes[i].name == axis) return *groups[i];
  fail("mesh '{}' has no axis '{}'", mesh.str(), axis);
}

}  // namespace trireme::runtime
