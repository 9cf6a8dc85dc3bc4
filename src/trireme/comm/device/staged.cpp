#include <algorithm>

#include "trireme/comm/cuts.h"
#include "trireme/comm/device/kinds.h"
#include "trireme/device/host_block.h"

namespace trireme::comm {
namespace {

// Down to the host, from there to the other rank's, and up again.
class StagedMessage final : public DeviceMessage {
 public:
  StagedMessage(const Place& place, Communicator& group, device::Kind kind)
      : DeviceMessage(place), group_(group), block_(kind, std::max<std::size_t>(place.bytes, 1)) {}

  void start(const OnStream& on) override {
    request_.wait();  // of the run before, whose end has waited for it
    const std::span staged(block_.data(), place_.bytes);
    if (!place_.sends) {
      group_.recv(staged, place_.peer, place_.tag);
      return on.streams.copy(place_.data, staged.data(), staged.size(), on.stream);
    }
    on.streams.copy(staged.data(), place_.data, staged.size(), on.stream);
    on.streams.synchronize(on.stream);
    request_ = group_.start_send(staged, place_.peer, place_.tag);
  }

  void finish() override { request_.wait(); }

 private:
  Communicator& group_;
  device::HostBlock block_;
  comm::Request request_;
};

// Down to the host, through the communicator, and up again.
class StagedGroup final : public DeviceGroup {
 public:
  StagedGroup(Communicator& group, device::Kind kind) : group_(group), kind_(kind) {}

  void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options,
                  const OnStream& on) override {
    begin(total_bytes(segments, size_of(dtype)) + segments.size() * kAlignment);
    staged_.clear();
    for (const Segment& s : segments) {
      staged_.push_back({place(static_cast<std::size_t>(s.count) * size_of(dtype)), s.count});
      on.streams.copy(staged_.back().data, s.data, bytes_of(s, dtype), on.stream);
    }
    on.streams.synchronize(on.stream);
    group_.all_reduce(staged_, dtype, reduce, on_host(options));
    for (std::size_t i = 0; i < segments.size(); ++i)
      on.streams.copy(segments[i].data, staged_[i].data, bytes_of(segments[i], dtype), on.stream);
    on.streams.synchronize(on.stream);
  }

  void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream& on) override {
    stage(cuts, dtype);
    for (std::size_t i = 0; i < cuts.size(); ++i)
      on.streams.copy(cuts_[i].whole, cuts[i].whole, bytes(cuts[i].count, dtype), on.stream);
    on.streams.synchronize(on.stream);
    group_.reduce_scatter(cuts_, dtype, Reduce::sum, on_host(options));
    for (std::size_t i = 0; i < cuts.size(); ++i)
      on.streams.copy(cuts[i].slice, cuts_[i].slice, bytes(cuts[i].slice_count, dtype), on.stream);
    on.streams.synchronize(on.stream);
  }

  void all_gather(std::span<const Cut> cuts, DType dtype, const Options& options, const OnStream& on) override {
    stage(cuts, dtype);
    for (std::size_t i = 0; i < cuts.size(); ++i)
      on.streams.copy(cuts_[i].slice, cuts[i].slice, bytes(cuts[i].slice_count, dtype), on.stream);
    on.streams.synchronize(on.stream);
    group_.all_gather(cuts_, dtype, on_host(options));
    for (std::size_t i = 0; i < cuts.size(); ++i)
      on.streams.copy(cuts[i].whole, cuts_[i].whole, bytes(cuts[i].count, dtype), on.stream);
    on.streams.synchronize(on.stream);
  }

  void all_to_all(std::span<const Exchange> tensors, const Options&, const OnStream& on) override {
    for (const Exchange& t : tensors) {
      begin(2 * (t.bytes + kAlignment));
      std::byte* const out = place(t.bytes);
      std::byte* const in = place(t.bytes);
      on.streams.copy(out, t.out, t.bytes, on.stream);
      on.streams.synchronize(on.stream);
      group_.all_to_all({out, t.bytes}, {in, t.bytes});
      on.streams.copy(t.in, in, t.bytes, on.stream);
      on.streams.synchronize(on.stream);
    }
  }

  void exchange(std::span<const Swap> swaps, const Options& options, const OnStream& on) override {
    std::size_t needed = 0;
    for (const Swap& swap : swaps) needed += swap.out.size() + swap.in.size() + 2 * kAlignment;
    begin(needed);
    swaps_.clear();
    for (const Swap& swap : swaps) {
      std::byte* const out = place(swap.out.size());
      on.streams.copy(out, swap.out.data(), swap.out.size(), on.stream);
      swaps_.push_back({swap.peer, {out, swap.out.size()}, {place(swap.in.size()), swap.in.size()}});
    }
    on.streams.synchronize(on.stream);
    group_.exchange(swaps_, on_host(options));
    for (std::size_t i = 0; i < swaps.size(); ++i)
      on.streams.copy(swaps[i].in.data(), swaps_[i].in.data(), swaps[i].in.size(), on.stream);
    on.streams.synchronize(on.stream);
  }

  std::unique_ptr<DeviceMessage> message(const DeviceMessage::Place& place) override {
    return std::make_unique<StagedMessage>(place, group_, kind_);
  }

  std::uint64_t sent() const override { return 0; }  // the communicator counts

 private:
  static constexpr std::size_t kAlignment = 64;

  static std::size_t bytes(std::int64_t count, DType dtype) { return static_cast<std::size_t>(count) * size_of(dtype); }
  static std::size_t bytes_of(const Segment& s, DType dtype) { return bytes(s.count, dtype); }

  // The scratch that was planned is the device's.
  static Options on_host(const Options& options) {
    return {.algorithm = options.algorithm, .scratch = {}, .name = options.name};
  }

  void begin(std::size_t needed) {
    used_ = 0;
    if (!block_ || block_->bytes() < needed) {
      block_.reset();
      block_ = std::make_unique<device::HostBlock>(kind_, std::max<std::size_t>(needed, 1));
    }
  }
  std::byte* place(std::size_t size) {
    std::byte* const at = block_->data() + used_;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  void stage(std::span<const Cut> cuts, DType dtype) {
    std::size_t needed = 0;
    for (const Cut& cut : cuts) needed += bytes(cut.count + cut.slice_count, dtype) + 2 * kAlignment;
    begin(needed);
    cuts_.clear();
    for (const Cut& cut : cuts) {
      std::byte* const whole = place(bytes(cut.count, dtype));
      cuts_.push_back({whole, place(bytes(cut.slice_count, dtype)), cut.count, cut.slice_count});
    }
  }

  Communicator& group_;
  device::Kind kind_;
  std::unique_ptr<device::HostBlock> block_;
  std::size_t used_ = 0;
  std::vector<Segment> staged_;
  std::vector<Cut> cuts_;
  std::vector<Swap> swaps_;
};

}  // namespace

std::unique_ptr<DeviceGroup> staged_group(Communicator& group, device::Kind kind) {
  return std::make_unique<StagedGroup>(group, kind);
}

std::unique_ptr<DeviceGroup> DeviceGroup::over(Communicator& group, device::Kind kind, bool nccl) {
  if (kind == device::Kind::cpu) return host_group(group);
  if (nccl) return nccl_group(group);
  return group.transport() == TransportKind::threads ? shared_group(group) : staged_group(group, kind);
}

}  // namespace trireme::comm
