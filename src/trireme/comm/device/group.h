#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "trireme/comm/communicator.h"
#include "trireme/device/queue.h"

namespace trireme::comm {

// Collectives on the memory of a device that is not the CPU, in the order of a lane of its queue. The caller's thread
// meets the others of the group and hands the work over; it does not wait for the device where the ranks share a
// process, and does where bytes travel through the host.
class DeviceGroup {
 public:
  // In which lane, and the events of the queue that this group may use.
  struct Lane {
    device::Queue& queue;
    std::size_t lane = 0;
    std::size_t first_event = 0;
    static constexpr std::size_t kEvents = 2;
  };

  // Over `group`, which must outlive it: over NCCL where that is asked for, by reading each other's memory where its
  // ranks are threads of one process, by way of the host's memory elsewhere. Collective.
  static std::unique_ptr<DeviceGroup> over(Communicator& group, device::Kind kind, bool nccl = false);

  DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  virtual ~DeviceGroup() = default;

  // As the Communicator's of the same names. Sums and maxima of floats.
  virtual void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options,
                          const Lane& lane) = 0;
  virtual void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options& options, const Lane& lane) = 0;
  virtual void all_gather(std::span<const Cut> cuts, DType dtype, const Options& options, const Lane& lane) = 0;
  // Of several tensors at once: run i of each `out` goes to rank i.
  struct Exchange {
    const std::byte* out = nullptr;
    std::byte* in = nullptr;
    std::size_t bytes = 0;  // of all runs
  };
  virtual void all_to_all(std::span<const Exchange> tensors, const Lane& lane) = 0;

  // Bytes that this rank gave to others without messages of its communicator.
  virtual std::uint64_t sent() const = 0;
};

}  // namespace trireme::comm
