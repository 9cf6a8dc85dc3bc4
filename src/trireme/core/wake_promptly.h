#pragma once

namespace trireme {

// Asks the system to run the calling thread as soon as it wakes: for threads that mostly wait, and then hand on what
// others compute with. Two things otherwise delay them on Linux. Since 6.6 a thread that wakes while all cores compute
// waits until another's slice of about 3 ms is over; one that asks for short slices does not (6.12 and later), and its
// share of the cores stays the same. And a sleep until a point in time, as emulated links need it, ends up to 50 µs
// later, so that several can end at once.
void wake_promptly();

}  // namespace trireme
