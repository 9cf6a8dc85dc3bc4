#pragma once
#include <algorithm>
#include <chrono>

namespace trireme::comm {

// A timeout as a duration. One that no clock can count to is the longest that one can: a hundred years.
template <class Duration>
Duration timeout_of(double seconds) {
  constexpr double kLongest = 100.0 * 365 * 24 * 3600;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kLongest)));
}

// The part of a wait that counts towards a timeout. A thread asked to wait for `asked` and woke after `took`. If it
// woke far too late, the process was stopped (Ctrl-Z, a debugger, a scheduler that suspends jobs), and so were the
// ranks it waits for: at most twice `asked` counts.
template <class Duration>
Duration counted_wait(Duration took, Duration asked) {
  return std::min<Duration>(took, 2 * asked);
}

}  // namespace trireme::comm
