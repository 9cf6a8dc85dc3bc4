#include "trireme/core/wake_promptly.h"

#ifdef __linux__
#include <linux/sched.h>  // <sched.h>, which has some of the same names, must not be included here
#include <linux/sched/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trireme {

void wake_promptly() {
#ifdef __linux__
  sched_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.sched_flags = SCHED_FLAG_KEEP_POLICY;
  attributes.sched_nice = getpriority(PRIO_PROCESS, 0);
  attributes.sched_runtime = 100'000;  // ns, the shortest slice that Linux gives
  // What an older system refuses was a wish: the thread wakes as it would have.
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0));
#endif
}

}  // namespace trireme
