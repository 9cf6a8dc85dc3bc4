#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {

// Ranks count from the root. In round k, those whose number ends in 1 followed by k zeros hand their sum to the one
// 2^k below and are done.
void tree_reduce(Wire& wire, const Reduction& r, int root) {
  const int n = wire.size();
  const int me = (wire.rank() - root + n) % n;
  for (int distance = 1; distance < n; distance *= 2) {
    if ((me & distance) != 0) {
      wire.step();
      Ticket out = wire.send(r.all(), (me - distance + root) % n);
      return wire.wait(out);
    }
    if (me + distance < n) {
      wire.step();
      Wire::Incoming in = wire.recv_combine(r.all(), r.scratch, (me + distance + root) % n, r.combine());
      wire.wait(in);
    }
  }
  r.finish(r.all(), n);
}

void tree_broadcast(Wire& wire, std::span<std::byte> bytes, int root) {
  const int n = wire.size();
  const int me = (wire.rank() - root + n) % n;
  int distance = 1;
  while (distance < n && (me & distance) == 0) distance *= 2;
  if (me != 0) {
    wire.step();
    Ticket in = wire.recv(bytes, (me - distance + root) % n);
    wire.wait(in);
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (me + distance >= n) continue;
    wire.step();
    Ticket out = wire.send(bytes, (me + distance + root) % n);
    wire.wait(out);
  }
}

void tree_all_reduce(Wire& wire, const Reduction& r) {
  tree_reduce(wire, r, 0);
  tree_broadcast(wire, r.all(), 0);
}

}  // namespace trireme::comm
