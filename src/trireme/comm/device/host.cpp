#include <cstring>

#include "trireme/comm/device/kinds.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

// In the host's own memory: what the communicator does, done by the stream's thread.
class HostGroup final : public DeviceGroup {
 public:
  explicit HostGroup(Communicator& group) : group_(group) {}

  void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options,
                  const OnStream&) override {
    group_.all_reduce(segments, dtype, reduce, options);
  }
  void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream&) override {
    group_.reduce_scatter(cuts, dtype, Reduce::sum, options);
  }
  void all_gather(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream&) override {
    group_.all_gather(cuts, dtype, options);
  }

  // Several tensors are one message, by way of the scratch.
  void all_to_all(std::span<const Exchange> tensors, const Options& options, const OnStream&) override {
    if (tensors.size() == 1) {
      group_.all_to_all({tensors[0].out, tensors[0].bytes}, {tensors[0].in, tensors[0].bytes});
      return;
    }
    std::size_t total = 0;
    for (const Exchange& t : tensors) total += t.bytes;
    if (options.scratch.size() < 2 * total)
      fail("{} tensors of {} bytes are exchanged by way of a scratch of {}", tensors.size(), total,
           options.scratch.size());
    std::byte* const out = options.scratch.data();
    std::byte* const in = out + total;
    each_run(tensors, [&](std::size_t packed, const Exchange& t, std::size_t at, std::size_t run) {
      std::memcpy(out + packed, t.out + at, run);
    });
    group_.all_to_all({out, total}, {in, total});
    each_run(tensors, [&](std::size_t packed, const Exchange& t, std::size_t at, std::size_t run) {
      std::memcpy(t.in + at, in + packed, run);
    });
  }

  void exchange(std::span<const Swap> swaps, const Options& options, const OnStream&) override {
    group_.exchange(swaps, options);
  }

  std::unique_ptr<DeviceMessage> message(const DeviceMessage::Place&) override {
    fail("the messages of a CPU are its communicator's");
  }

  std::uint64_t sent() const override { return 0; }  // the communicator counts

 private:
  // Calls f(where a run is in the message, its tensor, where in that, its bytes).
  template <class F>
  void each_run(std::span<const Exchange> tensors, F&& f) const {
    const auto ranks = static_cast<std::size_t>(group_.size());
    std::size_t packed = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      for (const Exchange& t : tensors) {
        const std::size_t run = t.bytes / ranks;
        f(packed, t, r * run, run);
        packed += run;
      }
  }

  Communicator& group_;
};

}  // namespace

std::unique_ptr<DeviceGroup> host_group(Communicator& group) { return std::make_unique<HostGroup>(group); }

}  // namespace trireme::comm
