#include "trireme/core/wake_promptly.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <thread>

namespace trireme {
namespace {

TEST(WakePromptly, ConcernsTheCallingThreadAlone) {
  const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  int asked = 0;
  std::thread([&] {
    wake_promptly();
    asked = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  }).join();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), before);
}

}  // namespace
}  // namespace trireme
