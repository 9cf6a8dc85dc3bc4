#include "trireme/core/wake_promptly.h"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace trireme {

void wake_promptly() {
#ifdef __linux__
  // The kernel's sched_attr, whose header and <sched.h> define the same names, in its first version.
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  constexpr std::uint64_t kKeepPolicy = 8;
  attributes.size = sizeof attributes;
  attributes.flags = kKeepPolicy;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;  // ns, the shortest slice that Linux gives
  // What an older system refuses was a wish: the thread wakes as it would have.
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0));
#endif
}

}  // namespace trireme
