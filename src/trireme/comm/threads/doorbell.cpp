#include "trireme/comm/threads/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace trireme::comm::threads {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Patience patience(int ranks) {
  // About a microsecond of pauses, then some tens of calls to the scheduler.
  return ranks <= usable_cores() ? Patience{.spins = 60, .yields = 20} : Patience{.spins = 0, .yields = 40};
}

bool offer_core() { return sched_yield() == 0; }

void Doorbell::wake() {
  word_.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::block(std::uint32_t seen, Clock::time_point until) {
  // The steady clock is the kernel's monotonic one, in which the bitset form takes a point in time.
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch()).count();
  const timespec when{.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word_), FUTEX_WAIT_BITSET_PRIVATE, seen, &when, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

}  // namespace trireme::comm::threads
