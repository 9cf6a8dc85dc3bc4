#pragma once
#include <algorithm>
#include <chrono>

namespace trireme::comm {

// What of a wait that was to last `asked` counts towards a timeout. One that took far longer was no wait for others:
// the process was stopped (Ctrl-Z, a debugger, a scheduler that suspends jobs), and the ranks that it waits for were
// too.
template <class Duration>
Duration counted_wait(Duration took, Duration asked) {
  return std::min<Duration>(took, 2 * asked);
}

}  // namespace trireme::comm
