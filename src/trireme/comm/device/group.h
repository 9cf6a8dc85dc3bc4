#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "trireme/comm/communicator.h"
#include "trireme/comm/device/message.h"
#include "trireme/comm/device/on_stream.h"

namespace trireme::comm {

// Collectives on a device's memory, in the order of one of its streams. The caller's thread meets the others of the
// group and gives the stream its work. It waits for the stream where bytes go through the host's memory; on the CPU it
// does the work itself.
class DeviceGroup {
 public:
  using OnStream = comm::OnStream;
  static constexpr std::size_t kEvents = 2;  // that a collective uses

  // Over `group`, which must outlive it. On the CPU by `group` itself; else over NCCL where that is asked for, by
  // reading each other's memory where its ranks are threads of one process, by way of the host's memory elsewhere.
  // Collective.
  static std::unique_ptr<DeviceGroup> over(Communicator& group, device::Kind kind, bool nccl = false);

  DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  virtual ~DeviceGroup() = default;

  // As the Communicator's of the same names. Sums and maxima of floats.
  virtual void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options,
                          const OnStream& on) = 0;
  virtual void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream& on) = 0;
  virtual void all_gather(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream& on) = 0;
  // Of several tensors at once: run i of each `out` goes to rank i.
  struct Exchange {
    const std::byte* out = nullptr;
    std::byte* in = nullptr;
    std::size_t bytes = 0;  // of all runs
  };
  virtual void all_to_all(std::span<const Exchange> tensors, const Options& options, const OnStream& on) = 0;

  // As the Communicator's.
  virtual void exchange(std::span<const Swap> swaps, const Options& options, const OnStream& on) = 0;

  // One end of a message to or from another of the group. It must not outlive the group. Not on the CPU, where streams
  // are threads and wait for each other's messages themselves.
  virtual std::unique_ptr<DeviceMessage> message(const DeviceMessage::Place& place) = 0;

  // Bytes that this rank gave to others without messages of its communicator.
  virtual std::uint64_t sent() const = 0;

  // Whether work on a stream waits for other ranks, and so for ever when one of them fails.
  virtual bool waits_on_device() const { return false; }
  // Throws when such work will not end: another rank has given up, or the library reports an error. It does not block.
  virtual void check() {}
  // Ends such work, whatever it has done; later calls fail. After a failure, before waiting for the streams.
  virtual void abandon() noexcept {}
};

// Waits for all that the streams of the set have been given, collectives of these groups among it. Throws what `check`
// does, once all streams are idle: their collectives have then been abandoned.
void synchronize(device::Streams& streams, std::span<DeviceGroup* const> groups,
                 device::Streams::Set of = device::Streams::kAll);

}  // namespace trireme::comm
