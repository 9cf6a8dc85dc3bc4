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
  return ranks <= usable_cores() ? Patience{.spins = 300, .yields = 0} : Patience{.spins = 0, .yields = 40};
}

void Doorbell::offer_core() {
  constexpr auto kKept = std::chrono::microseconds(200);
  constexpr int kWaits = 1000;
  const Clock::time_point before = Clock::now();
  sched_yield();
  if (Clock::now() - before > kKept) wary_ = kWaits;
}

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
