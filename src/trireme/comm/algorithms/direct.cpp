#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {

void direct_gather(Wire& wire, std::span<const std::byte> mine, std::span<std::byte> all, int root) {
  if (wire.rank() != root) {
    wire.step();
    Ticket out = wire.send(mine, root);
    return wire.wait(out);
  }
  for (int i = 0; i < wire.size(); ++i) {
    const std::span<std::byte> place = all.subspan(static_cast<std::size_t>(i) * mine.size(), mine.size());
    if (i == root) {
      if (!mine.empty() && place.data() != mine.data()) std::memcpy(place.data(), mine.data(), mine.size());
      continue;
    }
    wire.step();
    Ticket in = wire.recv(place, i);
    wire.wait(in);
  }
}

void direct_scatter(Wire& wire, std::span<const std::byte> all, std::span<std::byte> mine, int root) {
  if (wire.rank() != root) {
    wire.step();
    Ticket in = wire.recv(mine, root);
    return wire.wait(in);
  }
  for (int i = 0; i < wire.size(); ++i) {
    const std::span<const std::byte> part = all.subspan(static_cast<std::size_t>(i) * mine.size(), mine.size());
    if (i == root) {
      if (!mine.empty() && part.data() != mine.data()) std::memcpy(mine.data(), part.data(), mine.size());
      continue;
    }
    wire.step();
    Ticket out = wire.send(part, i);
    wire.wait(out);
  }
}

void pairwise_all_to_all(Wire& wire, std::span<const std::byte> out, std::span<std::byte> in) {
  const int n = wire.size();
  const std::size_t run = out.size() / static_cast<std::size_t>(n);
  const auto of = [&](auto bytes, int i) { return bytes.subspan(static_cast<std::size_t>(i) * run, run); };
  if (run > 0) std::memcpy(of(in, wire.rank()).data(), of(out, wire.rank()).data(), run);
  for (int step = 1; step < n; ++step) {
    const int to = (wire.rank() + step) % n;
    const int from = (wire.rank() - step + n) % n;
    wire.step();
    Ticket receive = wire.recv(of(in, from), from);
    Ticket send = wire.send(of(out, to), to);
    wire.wait(receive);
    wire.wait(send);
  }
}

void direct_exchange(Wire& wire, std::span<const Swap> swaps, std::vector<Ticket>& tickets) {
  if (swaps.empty()) return;
  wire.step();
  for (const Swap& swap : swaps)
    if (!swap.in.empty()) tickets.push_back(wire.recv(swap.in, swap.peer));
  for (const Swap& swap : swaps)
    if (!swap.out.empty()) tickets.push_back(wire.send(swap.out, swap.peer));
  for (Ticket& ticket : tickets) wire.wait(ticket);
  tickets.clear();
}

void dissemination_barrier(Wire& wire) {
  const int n = wire.size();
  for (int distance = 1; distance < n; distance *= 2) {
    wire.step();
    Ticket in = wire.recv({}, (wire.rank() - distance + n) % n);
    Ticket out = wire.send({}, (wire.rank() + distance) % n);
    wire.wait(in);
    wire.wait(out);
  }
}

}  // namespace trireme::comm
