#include "trireme/runtime/process_groups.h"

#include "trireme/core/error.h"

namespace trireme::runtime {

ProcessGroups::ProcessGroups(ir::Mesh mesh, std::vector<int> coordinate, comm::Communicator& world,
                             std::span<const Seat> seats, Options options)
    : mesh_(std::move(mesh)), coordinate_(std::move(coordinate)), options_(options) {
  for (const Seat& seat : seats)
    if (auto communicator = world.split(seat.color, seat.key))
      entries_.push_back({seat.axes, std::move(communicator), nullptr, seat.messages});
}

std::size_t ProcessGroups::find(std::string_view axis) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].messages.empty() && fmt::format("{}", fmt::join(entries_[i].axes, "+")) == axis) return i;
  }
  fail("the run has no group along axis '{}'", axis);
}

comm::Communicator& ProcessGroups::group(std::string_view axis) const { return *entries_[find(axis)].communicator; }

std::size_t ProcessGroups::find_messages(std::string_view group) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].messages == group) return i;
  fail("the run has no group of the messages '{}'", group);
}

comm::Communicator& ProcessGroups::messages(std::string_view group) const {
  return *entries_[find_messages(group)].communicator;
}

comm::DeviceGroup& ProcessGroups::device_messages(std::string_view group, device::Kind kind) {
  return device_group(entries_[find_messages(group)], kind);
}

comm::DeviceGroup& ProcessGroups::device_group(std::string_view axis, device::Kind kind) {
  return device_group(entries_[find(axis)], kind);
}

comm::DeviceGroup& ProcessGroups::device_group(Entry& entry, device::Kind kind) {
  if (!entry.device_group) {
    entry.device_group = comm::DeviceGroup::over(*entry.communicator, kind, options_.nccl);
    device_groups_.push_back(entry.device_group.get());
  }
  return *entry.device_group;
}

void ProcessGroups::synchronize(device::Streams& streams, device::Streams::Set of) const {
  comm::synchronize(streams, device_groups_, of);
}

void ProcessGroups::abandon() noexcept {
  for (const Entry& entry : entries_)
    if (entry.device_group) entry.device_group->abandon();
}

std::uint64_t ProcessGroups::sent_bytes() const {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries_)
    sum += entry.communicator->counters().sent + (entry.device_group ? entry.device_group->sent() : 0);
  return sum;
}

}  // namespace trireme::runtime
