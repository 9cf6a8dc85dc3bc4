#include "trireme/device/cuda/nccl.h"

#include "trireme/comm/cuts.h"
#include "trireme/comm/device/kinds.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/peers.h"

namespace trireme::comm {
namespace {

using device::cuda::Nccl;

Nccl::Id broadcast_id(Communicator& group) {
  Nccl::Id id{};
  if (group.rank() == 0) id = Nccl::make_id();
  group.broadcast(id, 0);
  return id;
}

// The library's own, which wait for each other on their streams.
class NcclMessage final : public DeviceMessage {
 public:
  NcclMessage(const Place& place, const Nccl& nccl, std::uint64_t& sent)
      : DeviceMessage(place), nccl_(nccl), sent_(sent) {}

  void start(const OnStream& on) override {
    void* const stream = on.streams.native(on.stream);
    if (!place_.sends) return nccl_.receive(place_.data, place_.bytes, place_.peer, stream);
    nccl_.send(place_.data, place_.bytes, place_.peer, stream);
    sent_ += place_.bytes;
  }

 private:
  const Nccl& nccl_;
  std::uint64_t& sent_;
};

// One rank on each GPU. The communicator is used to find each other, and to learn that one of them has given up.
class NcclGroup final : public DeviceGroup {
 public:
  explicit NcclGroup(Communicator& group)
      : group_(group),
        rank_(group.rank()),
        size_(group.size()),
        nccl_(broadcast_id(group), group.rank(), group.size()) {}

  void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options&,
                  const OnStream& on) override {
    nccl_.begin();
    for (const Segment& s : segments) nccl_.all_reduce(s.data, s.count, dtype, reduce == Reduce::max, stream(on));
    nccl_.end();
    const std::uint64_t others = static_cast<std::uint64_t>(size_) - 1;
    sent_ += 2 * total_bytes(segments, size_of(dtype)) * others / static_cast<std::uint64_t>(size_);
  }

  void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options&, const OnStream& on) override {
    nccl_.begin();
    for (const Cut& cut : cuts) {
      if (even(cut)) {
        nccl_.reduce_scatter(cut.whole, cut.slice, cut.slice_count, dtype, stream(on));
        continue;
      }
      for (int r = 0; r < size_; ++r)
        if (slice_extent(cut, r) > 0)
          nccl_.reduce(part(cut, r, dtype), cut.slice, slice_extent(cut, r), dtype, r, stream(on));
    }
    nccl_.end();
    for (const Cut& cut : cuts) {
      const std::size_t filled = static_cast<std::size_t>(slice_extent(cut, rank_)) * size_of(dtype);
      const std::size_t room = static_cast<std::size_t>(cut.slice_count) * size_of(dtype);
      device::cuda::zero(static_cast<std::byte*>(cut.slice) + filled, room - filled, stream(on));
    }
    sent_ += total_bytes(cuts, size_of(dtype)) - bytes_of(cuts, rank_, size_of(dtype));
  }

  void all_gather(std::span<const Cut> cuts, DType dtype, const Options&, const OnStream& on) override {
    nccl_.begin();
    for (const Cut& cut : cuts) {
      if (even(cut)) {
        nccl_.all_gather(cut.slice, cut.whole, cut.slice_count, dtype, stream(on));
        continue;
      }
      for (int r = 0; r < size_; ++r)
        if (slice_extent(cut, r) > 0)
          nccl_.broadcast(cut.slice, part(cut, r, dtype), slice_extent(cut, r), dtype, r, stream(on));
    }
    nccl_.end();
    sent_ += total_bytes(cuts, size_of(dtype)) - bytes_of(cuts, rank_, size_of(dtype));
  }

  void all_to_all(std::span<const Exchange> tensors, const Options&, const OnStream& on) override {
    nccl_.begin();
    for (const Exchange& t : tensors) {
      const std::size_t run = t.bytes / static_cast<std::size_t>(size_);
      for (int r = 0; r < size_; ++r) {
        nccl_.send(t.out + static_cast<std::size_t>(r) * run, run, r, stream(on));
        nccl_.receive(t.in + static_cast<std::size_t>(r) * run, run, r, stream(on));
      }
      sent_ += t.bytes - run;
    }
    nccl_.end();
  }

  void exchange(std::span<const Swap> swaps, const Options&, const OnStream& on) override {
    nccl_.begin();
    for (const Swap& swap : swaps) {
      if (!swap.out.empty()) nccl_.send(swap.out.data(), swap.out.size(), swap.peer, stream(on));
      if (!swap.in.empty()) nccl_.receive(swap.in.data(), swap.in.size(), swap.peer, stream(on));
      sent_ += swap.out.size();
    }
    nccl_.end();
  }

  std::unique_ptr<DeviceMessage> message(const DeviceMessage::Place& place) override {
    return std::make_unique<NcclMessage>(place, nccl_, sent_);
  }

  std::uint64_t sent() const override { return sent_; }

  bool waits_on_device() const override { return true; }
  void check() override {
    group_.check();
    nccl_.check();
  }
  void abandon() noexcept override { nccl_.abandon(); }

 private:
  static void* stream(const OnStream& on) { return on.streams.native(on.stream); }
  bool even(const Cut& cut) const { return cut.count == cut.slice_count * size_; }
  static std::byte* part(const Cut& cut, int rank, DType dtype) {
    return static_cast<std::byte*>(cut.whole) + static_cast<std::size_t>(slice_begin(cut, rank)) * size_of(dtype);
  }

  Communicator& group_;
  int rank_;
  int size_;
  Nccl nccl_;
  std::uint64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<DeviceGroup> nccl_group(Communicator& group) { return std::make_unique<NcclGroup>(group); }

}  // namespace trireme::comm
