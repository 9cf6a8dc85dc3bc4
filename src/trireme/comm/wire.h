#pragma once
#include <span>

#include "trireme/comm/arithmetic.h"
#include "trireme/comm/transport.h"

namespace trireme::comm {

// What an algorithm sees of a transport: its own message space for the length of one collective, and counters.
//
//   wire.step();
//   Incoming in = wire.recv_combine(chunk, scratch, left, {dtype, reduce});
//   Ticket out = wire.send(other_chunk, right);
//   wire.wait(in);
//   wire.wait(out);
class Wire {
 public:
  // A message whose bytes are combined into what is at `into` by the time wait() returns.
  struct Incoming {
    Ticket ticket;
    std::span<std::byte> into;
    const std::byte* arrived = nullptr;  // where the transport does not combine
    Combine combine;
  };

  Wire(Transport& transport, Channel channel, int tag, const Call& call, Counters& counters)
      : transport_(transport), counters_(counters), call_(call), tag_(tag), channel_(channel) {}

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }

  // Begins a step: what is sent and received until the next one happens at once.
  void step() {
    ++counters_.steps;
    ++call_.step;
  }
  Ticket send(std::span<const std::byte> bytes, int to) {
    ++counters_.messages;
    counters_.sent += bytes.size();
    return transport_.send(channel_, bytes, to, tag_);
  }
  Ticket recv(std::span<std::byte> bytes, int from) {
    counters_.received += bytes.size();
    return transport_.recv(channel_, bytes, from, tag_, nullptr);
  }
  // `scratch` has room for the message; it is used where the transport cannot combine by itself.
  Incoming recv_combine(std::span<std::byte> into, std::span<std::byte> scratch, int from, const Combine& combine) {
    counters_.received += into.size();
    if (transport_.combines()) return {transport_.recv(channel_, into, from, tag_, &combine), into, nullptr, combine};
    return {transport_.recv(channel_, scratch.first(into.size()), from, tag_, nullptr), into, scratch.data(), combine};
  }
  void wait(Ticket& ticket) {
    if (ticket) transport_.wait(ticket, call_);
  }
  void wait(Incoming& in) {
    wait(in.ticket);
    if (in.arrived != nullptr)
      comm::combine(in.into.data(), in.arrived, static_cast<std::int64_t>(in.into.size() / size_of(in.combine.dtype)),
                    in.combine.dtype, in.combine.reduce);
  }

 private:
  Transport& transport_;
  Counters& counters_;
  Call call_;
  int tag_;
  Channel channel_;
};

}  // namespace trireme::comm
