#pragma once
#include <cstddef>

#include "trireme/comm/device/on_stream.h"

namespace trireme::comm {

// A message from one rank's device memory to another's that is sent or received again and again. Both ranks' threads
// give their streams the work in the order of their programs, and no stream's work waits for what has not been given:
//
//   sender     … made ── start ──────────────── settle ── its memory may be written again
//                          └ where it is    ┌ when it has been taken
//   receiver              … start: waits, copies ── used …
//
// A sender's thread never waits in `start`; a receiver's waits there for the sender's, a sender's in `settle` for the
// receiver's. program::check_together proves that they come.
//
// That a message is settled says nothing of those that were sent to other ranks before it, even on the same stream
// (program/happens_before.h).
class DeviceMessage {
 public:
  // What is sent, or where what is received goes. The tag is that of both ends.
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
    int tag = 0;
    bool sends = false;
  };

  explicit DeviceMessage(const Place& place) : place_(place) {}
  DeviceMessage(const DeviceMessage&) = delete;
  DeviceMessage& operator=(const DeviceMessage&) = delete;
  virtual ~DeviceMessage() = default;

  // In the stream's order. `on.first_event` is an event of this message alone.
  virtual void start(const OnStream& on) = 0;
  // Whether a send is taken after what its stream is given now. Otherwise its event is recorded at once: later it would
  // stand behind other sends.
  virtual bool settles() const { return false; }
  // Of a send: what the stream is given from here on is done when the other rank has taken the message.
  virtual void settle(const OnStream&) {}
  // Waits until what this rank's thread has sent to the other's has been received: at the end of a run.
  virtual void finish() {}

 protected:
  const Place place_;
};

}  // namespace trireme::comm
