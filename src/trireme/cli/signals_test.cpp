#include "trireme/cli/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace trireme::cli {
namespace {

// What is asked of a process that goes on, with moments between; it does not end by itself.
void asked(const std::vector<int>& signals) {
  const Signals handled;
  Signals::between_steps("the best plan so far is kept", "the plans that were found are lost");
  for (const int signal : signals) {
    kill(getpid(), signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  std::_Exit(99);
}

// A command says what it would lose, and not what training would.
TEST(SignalsDeathTest, SaysWhatTheCommandKeepsAndLoses) {
  EXPECT_EXIT(asked({SIGINT, SIGINT}), ::testing::ExitedWithCode(130),
              "stopped at once: the plans that were found are lost");
  EXPECT_EXIT(asked({SIGTERM, SIGTERM, SIGTERM}), ::testing::ExitedWithCode(143),
              "stopped at once: the plans that were found are lost");
  EXPECT_EXIT(asked({SIGTERM, SIGINT}), ::testing::ExitedWithCode(99), "still stopping");
  EXPECT_EXIT(asked({SIGTERM, SIGTERM}), ::testing::ExitedWithCode(99),
              "still stopping: the best plan so far is kept; another signal stops at once: the plans that were found");
}

}  // namespace
}  // namespace trireme::cli
