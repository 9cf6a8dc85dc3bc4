#include <vector>

#include "trireme/comm/cuts.h"
#include "trireme/comm/device/kinds.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/peers.h"

namespace trireme::comm {
namespace {

using device::cuda::Peers;

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// What a sender's thread tells the receiver's.
struct Note {
  const std::byte* data = nullptr;
  void* made = nullptr;  // the event behind which it is there
};

// The receiver copies from the sender's memory.
class SharedMessage final : public DeviceMessage {
 public:
  SharedMessage(const Place& place, Communicator& group, std::uint64_t& sent)
      : DeviceMessage(place), group_(group), sent_(sent) {}

  void start(const OnStream& on) override {
    request_.wait();  // of the run before, whose end has waited for it
    if (place_.sends) {
      on.streams.record(on.first_event, on.stream);
      note_ = {place_.data, on.streams.handle(on.first_event)};
      request_ = group_.start_send(bytes_of(note_), place_.peer, place_.tag);
      sent_ += place_.bytes;
      return;
    }
    group_.recv(bytes_of(note_), place_.peer, place_.tag);
    on.streams.wait_for(note_.made, on.stream);
    on.streams.copy(place_.data, note_.data, place_.bytes, on.stream);
    on.streams.record(on.first_event, on.stream);
    taken_ = on.streams.handle(on.first_event);
    request_ = group_.start_send(bytes_of(taken_), place_.peer, place_.tag);
  }

  bool settles() const override { return true; }

  // Then the other's stream has its wait for this rank's event, which may be recorded again.
  void settle(const OnStream& on) override {
    group_.recv(bytes_of(taken_), place_.peer, place_.tag);
    on.streams.wait_for(taken_, on.stream);
  }

  void finish() override { request_.wait(); }

 private:
  Communicator& group_;
  std::uint64_t& sent_;
  Note note_;
  void* taken_ = nullptr;  // the receiver's event behind its copy
  comm::Request request_;
};

// Ranks that are threads of one process and see each other's device memory. Every call goes
//
//   ready ── tell the others where my tensors are ── wait for theirs ── my part, into everyone's memory ── done
//
// where `ready` and `done` are events that the others' streams wait for: no kernel waits for another rank, and each
// element is computed by one rank alone, so all have the same bits.
class SharedGroup final : public DeviceGroup {
 public:
  explicit SharedGroup(Communicator& group) : group_(group) {
    if (group.size() > device::cuda::kMaxPeers)
      refuse("{} ranks share a device; at most {} can", group.size(), device::cuda::kMaxPeers);
  }

  void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options&,
                  const OnStream& on) override {
    check(reduce);
    mine_.clear();
    for (const Segment& s : segments) mine_.push_back(s.data);
    meet(on);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const Cut cut{segments[i].data, nullptr, segments[i].count, aligned_share(segments[i].count)};
      Peers peers;
      for (int r = 0; r < size(); ++r) {
        std::byte* const whole = theirs(r, i) + begin(cut, dtype);
        peers.from[at(r)] = whole;
        peers.to[at(r)] = whole;
      }
      peers.sources = peers.targets = size();
      combine(peers, slice_extent(cut, rank()), dtype, reduce, on);
      count_sent(slice_extent(cut, rank()), dtype);
    }
    part(on);
  }

  void reduce_scatter(std::span<const Cut> cuts, DType dtype, const Options&, const OnStream& on) override {
    mine_.clear();
    for (const Cut& cut : cuts) mine_.push_back(cut.whole);
    meet(on);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      Peers peers;
      for (int r = 0; r < size(); ++r) peers.from[at(r)] = theirs(r, i) + begin(cuts[i], dtype);
      peers.to[0] = cuts[i].slice;
      peers.sources = size();
      peers.targets = 1;
      const std::int64_t extent = slice_extent(cuts[i], rank());
      combine(peers, extent, dtype, Reduce::sum, on);
      count_sent(cuts[i].count - extent, dtype, 1);
      const std::size_t filled = static_cast<std::size_t>(extent) * size_of(dtype);
      device::cuda::zero(static_cast<std::byte*>(cuts[i].slice) + filled,
                         static_cast<std::size_t>(cuts[i].slice_count) * size_of(dtype) - filled,
                         on.streams.native(on.stream));
    }
    part(on);
  }

  void all_gather(std::span<const Cut> cuts, DType dtype, const Options&, const OnStream& on) override {
    mine_.clear();
    for (const Cut& cut : cuts) mine_.push_back(cut.whole);
    meet(on);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const std::int64_t extent = slice_extent(cuts[i], rank());
      for (int r = 0; r < size(); ++r)
        if (std::byte* const to = theirs(r, i) + begin(cuts[i], dtype); to != cuts[i].slice)
          on.streams.copy(to, cuts[i].slice, static_cast<std::size_t>(extent) * size_of(dtype), on.stream);
      count_sent(extent, dtype);
    }
    part(on);
  }

  void all_to_all(std::span<const Exchange> tensors, const Options&, const OnStream& on) override {
    mine_.clear();
    for (const Exchange& t : tensors) mine_.push_back(t.in);
    meet(on);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t run = tensors[i].bytes / at(size());
      for (int r = 0; r < size(); ++r)
        on.streams.copy(theirs(r, i) + at(rank()) * run, tensors[i].out + at(r) * run, run, on.stream);
      sent_ += tensors[i].bytes - run;
    }
    part(on);
  }

  // Each reads what the others have for it.
  void exchange(std::span<const Swap> swaps, const Options&, const OnStream& on) override {
    mine_.assign(at(size()), nullptr);
    for (const Swap& swap : swaps) {
      mine_[at(swap.peer)] = const_cast<std::byte*>(swap.out.data());
      sent_ += swap.out.size();
    }
    meet(on);
    for (const Swap& swap : swaps)
      on.streams.copy(swap.in.data(), theirs(swap.peer, at(rank())), swap.in.size(), on.stream);
    part(on);
  }

  std::unique_ptr<DeviceMessage> message(const DeviceMessage::Place& place) override {
    return std::make_unique<SharedMessage>(place, group_, sent_);
  }

  std::uint64_t sent() const override { return sent_; }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  static void check(Reduce reduce) {
    if (reduce != Reduce::sum && reduce != Reduce::max) fail("devices combine by sum and max, got {}", name_of(reduce));
  }

  // Elements of each rank's part of a sum: whole packs of 16 bytes of any dtype.
  std::int64_t aligned_share(std::int64_t count) const {
    constexpr std::int64_t kPack = 16;
    return ((count + size() - 1) / size() + kPack - 1) / kPack * kPack;
  }

  std::size_t begin(const Cut& cut, DType dtype) const {
    return static_cast<std::size_t>(slice_begin(cut, rank())) * size_of(dtype);
  }

  std::byte* theirs(int r, std::size_t tensor) const {
    return static_cast<std::byte*>(all_[at(r) * mine_.size() + tensor]);
  }

  void combine(const Peers& peers, std::int64_t count, DType dtype, Reduce reduce, const OnStream& on) const {
    if (count > 0) device::cuda::combine(peers, count, dtype, reduce == Reduce::max, on.streams.native(on.stream));
  }

  void count_sent(std::int64_t elements, DType dtype, int times = 0) {
    if (times == 0) times = size() - 1;
    sent_ += static_cast<std::uint64_t>(elements) * size_of(dtype) * static_cast<std::uint64_t>(times);
  }

  // What every rank has at the moment, in the order of ranks.
  void tell(std::span<void* const> mine, std::vector<void*>& all) {
    all.resize(mine.size() * at(size()));
    const auto bytes = [](auto* pointers) { return reinterpret_cast<const std::uint8_t*>(pointers); };
    group_.all_gather(std::span(bytes(mine.data()), mine.size_bytes()),
                      std::span(const_cast<std::uint8_t*>(bytes(all.data())), all.size() * sizeof(void*)));
  }

  // Everyone's stream waits for everyone's event.
  void follow(const OnStream& on, std::size_t event) {
    on.streams.record(event, on.stream);
    void* const own = on.streams.handle(event);
    tell(std::span(&own, 1), handles_);
    for (int r = 0; r < size(); ++r)
      if (r != rank()) on.streams.wait_for(handles_[at(r)], on.stream);
  }

  void meet(const OnStream& on) {
    tell(mine_, all_);
    follow(on, on.first_event);
  }
  // An event of this group is recorded again only when all ranks have enqueued their wait for it: in the call that
  // follows, all have met.
  void part(const OnStream& on) { follow(on, on.first_event + 1); }

  Communicator& group_;
  std::vector<void*> mine_;  // addresses of this rank's tensors
  std::vector<void*> all_;   // and of everyone's, by rank
  std::vector<void*> handles_;
  std::uint64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<DeviceGroup> shared_group(Communicator& group) { return std::make_unique<SharedGroup>(group); }

}  // namespace trireme::comm
