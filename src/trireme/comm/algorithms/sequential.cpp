#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {

// Everything goes to rank 0, one rank after the other, and comes back the same way.
void sequential_all_reduce(Wire& wire, const Reduction& r) {
  constexpr int kRoot = 0;
  if (wire.rank() != kRoot) {
    wire.step();
    Ticket out = wire.send(r.all(), kRoot);
    wire.wait(out);
    wire.step();
    Ticket in = wire.recv(r.all(), kRoot);
    wire.wait(in);
    return;
  }
  for (int from = 1; from < wire.size(); ++from) {
    wire.step();
    Wire::Incoming in = wire.recv_combine(r.all(), r.scratch, from, r.combine());
    wire.wait(in);
  }
  r.finish(r.all(), wire.size());
  for (int to = 1; to < wire.size(); ++to) {
    wire.step();
    Ticket out = wire.send(r.all(), to);
    wire.wait(out);
  }
}

}  // namespace trireme::comm
