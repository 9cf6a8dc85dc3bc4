#include <array>
#include <vector>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {
namespace {

// Messages to everybody at once, without allocating for the usual numbers of ranks.
class Fan {
 public:
  explicit Fan(int ranks) {
    if (static_cast<std::size_t>(ranks) > few_.size()) many_.resize(static_cast<std::size_t>(ranks));
  }
  Ticket& operator[](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    return many_.empty() ? few_[i] : many_[i];
  }

 private:
  std::array<Ticket, 16> few_;
  std::vector<Ticket> many_;
};

}  // namespace

// Everybody sends everything to everybody and adds up alone. In the order of the ranks, so that all get the same bits;
// what is being sent must stay as it is, so the sum grows in scratch.
void parallel_all_reduce(Wire& wire, const Reduction& r) {
  const int n = wire.size();
  const std::span<std::byte> sum = r.scratch.first(r.bytes());
  const std::span<std::byte> arrived = r.scratch.subspan(r.bytes());
  wire.step();
  Fan sends(n);
  for (int i = 1; i < n; ++i) {
    const int to = (wire.rank() + i) % n;
    sends[to] = wire.send(r.all(), to);
  }
  for (int from = 0; from < n; ++from) {
    if (from == wire.rank()) {
      if (from == 0)
        std::memcpy(sum.data(), r.data, r.bytes());
      else
        combine(sum.data(), r.data, r.count, r.dtype, r.reduce);
    } else if (from == 0) {
      Ticket in = wire.recv(sum, from);
      wire.wait(in);
    } else {
      Wire::Incoming in = wire.recv_combine(sum, arrived, from, r.combine());
      wire.wait(in);
    }
  }
  for (int to = 0; to < n; ++to) wire.wait(sends[to]);
  std::memcpy(r.data, sum.data(), r.bytes());
  r.finish(r.all(), n);
}

void parallel_reduce_scatter(Wire& wire, const Slicing& s) {
  const int n = wire.size();
  const std::size_t mine = s.bytes(wire.rank());
  const auto count = static_cast<std::int64_t>(mine / s.element());
  const std::span<std::byte> sum = s.scratch.first(mine);
  const std::span<std::byte> arrived = s.scratch.subspan(mine, mine);
  std::byte* own = arrived.data() + mine;
  std::byte* out = own + mine;
  wire.step();
  Fan sends(n);
  for (int i = 1; i < n; ++i) {
    const int to = (wire.rank() + i) % n;
    std::byte* const end = pack_wholes(s.cuts, to, s.element(), out);
    sends[to] = wire.send({out, end}, to);
    out = end;
  }
  pack_wholes(s.cuts, wire.rank(), s.element(), own);
  for (int from = 0; from < n; ++from) {
    if (from == wire.rank()) {
      if (from == 0)
        std::memcpy(sum.data(), own, mine);
      else
        combine(sum.data(), own, count, s.dtype, s.reduce);
    } else if (from == 0) {
      Ticket in = wire.recv(sum, from);
      wire.wait(in);
    } else {
      Wire::Incoming in = wire.recv_combine(sum, arrived, from, {s.dtype, s.reduce});
      wire.wait(in);
    }
  }
  for (int to = 0; to < n; ++to) wire.wait(sends[to]);
  finish(sum.data(), count, s.dtype, s.reduce, n);
  unpack_slices(s.cuts, wire.rank(), s.element(), sum.data());
}

void parallel_all_gather(Wire& wire, const Slicing& s) {
  const int n = wire.size();
  std::byte* place = s.scratch.data();
  const std::span<const std::byte> mine(place, pack_slices(s.cuts, wire.rank(), s.element(), place));
  place += mine.size();
  wire.step();
  Fan sends(n);
  Fan receives(n);
  std::byte* arriving = place;
  for (int from = 0; from < n; ++from) {
    if (from == wire.rank()) continue;
    receives[from] = wire.recv({arriving, s.bytes(from)}, from);
    arriving += s.bytes(from);
  }
  for (int i = 1; i < n; ++i) {
    const int to = (wire.rank() + i) % n;
    sends[to] = wire.send(mine, to);
  }
  place_slices(s.cuts, wire.rank(), s.element());
  const std::byte* arrived = place;
  for (int from = 0; from < n; ++from) {
    if (from == wire.rank()) continue;
    wire.wait(receives[from]);
    arrived = unpack_wholes(s.cuts, from, s.element(), arrived);
  }
  for (int to = 0; to < n; ++to) wire.wait(sends[to]);
}

}  // namespace trireme::comm
