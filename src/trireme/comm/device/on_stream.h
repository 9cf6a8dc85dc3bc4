#pragma once
#include <cstddef>

#include "trireme/device/stream.h"

namespace trireme::comm {

// On which stream work with other ranks goes, and the first of the events that it may use. The streams must live until
// all ranks have returned from the call: theirs wait for events of these.
struct OnStream {
  device::Streams& streams;
  std::size_t stream = 0;
  std::size_t first_event = 0;
};

}  // namespace trireme::comm
