#include <utility>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {
namespace {

int around(int i, int n) { return ((i % n) + n) % n; }

}  // namespace

// Chunks travel to the right. On the first way round each one collects every rank's part; on the second its sum is
// left everywhere.
void ring_all_reduce(Wire& wire, const Reduction& r) {
  const int n = wire.size();
  const int right = (wire.rank() + 1) % n;
  const int left = around(wire.rank() - 1, n);
  for (int step = 0; step < n - 1; ++step) {
    wire.step();
    Wire::Incoming in = wire.recv_combine(r.chunk(around(wire.rank() - step - 1, n), n), r.scratch, left, r.combine());
    Ticket out = wire.send(r.chunk(around(wire.rank() - step, n), n), right);
    wire.wait(in);
    wire.wait(out);
  }
  r.finish(r.chunk(right, n), n);
  for (int step = 0; step < n - 1; ++step) {
    wire.step();
    Ticket in = wire.recv(r.chunk(around(wire.rank() - step, n), n), left);
    Ticket out = wire.send(r.chunk(around(wire.rank() + 1 - step, n), n), right);
    wire.wait(in);
    wire.wait(out);
  }
}

// As the first way round, but the wholes stay as they are: the chunk under way is held in scratch.
void ring_reduce_scatter(Wire& wire, const Slicing& s) {
  const int n = wire.size();
  const int right = (wire.rank() + 1) % n;
  const int left = around(wire.rank() - 1, n);
  const std::size_t room = s.largest(n);
  std::byte* leaving = s.scratch.data();
  std::byte* growing = leaving + room;
  const std::span<std::byte> arrived = s.scratch.subspan(2 * room);
  std::size_t leaving_bytes = s.bytes(left);
  pack_wholes(s.cuts, left, s.element(), leaving);
  for (int step = 0; step < n - 1; ++step) {
    const int chunk = around(wire.rank() - step - 2, n);
    wire.step();
    Ticket out = wire.send({leaving, leaving_bytes}, right);
    const std::span<std::byte> sum(growing, pack_wholes(s.cuts, chunk, s.element(), growing));
    Wire::Incoming in = wire.recv_combine(sum, arrived, left, {s.dtype, s.reduce});
    wire.wait(in);
    wire.wait(out);
    std::swap(leaving, growing);
    leaving_bytes = sum.size();
  }
  finish(leaving, static_cast<std::int64_t>(leaving_bytes / s.element()), s.dtype, s.reduce, n);
  unpack_slices(s.cuts, wire.rank(), s.element(), leaving);
}

void ring_all_gather(Wire& wire, const Slicing& s) {
  const int n = wire.size();
  const int right = (wire.rank() + 1) % n;
  const int left = around(wire.rank() - 1, n);
  const std::size_t room = s.largest(n);
  std::byte* leaving = s.scratch.data();
  std::byte* arriving = leaving + room;
  std::size_t leaving_bytes = s.bytes(wire.rank());
  pack_slices(s.cuts, wire.rank(), s.element(), leaving);
  place_slices(s.cuts, wire.rank(), s.element());
  for (int step = 0; step < n - 1; ++step) {
    const int chunk = around(wire.rank() - step - 1, n);
    wire.step();
    Ticket in = wire.recv({arriving, s.bytes(chunk)}, left);
    Ticket out = wire.send({leaving, leaving_bytes}, right);
    wire.wait(in);
    unpack_wholes(s.cuts, chunk, s.element(), arriving);
    wire.wait(out);
    std::swap(leaving, arriving);
    leaving_bytes = s.bytes(chunk);
  }
}

}  // namespace trireme::comm
