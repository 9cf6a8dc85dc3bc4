#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/source_dir.h"

namespace {

struct Outcome {
  int exit_code = 0;
  std::string output;
  double seconds = 0;
};

Outcome launch(int ranks, const std::string& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string command = trireme::source_dir() + "/tests/mpi/launch " + std::to_string(ranks) +
                              " " TRIREME_MPI_RANK " " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");  // NOLINT(cert-env33-c)
  Outcome outcome;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) outcome.output += buffer;
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

bool has(const Outcome& outcome, const std::string& text) { return outcome.output.find(text) != std::string::npos; }

class MpiFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
  }
};

TEST_F(MpiFailure, NothingWrong) {
  const Outcome outcome = launch(3, "quit 10");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(MpiFailure, AThrowingRankIsHeardByAll) {
  const Outcome outcome = launch(3, "throw 30");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(has(outcome, "error: the disk is full")) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
  // Both others say so too, unless the machine is so busy that they do not come to it in the seconds they are given.
  if (outcome.seconds > 2) return;
  const std::size_t first = outcome.output.find("error: rank 1 gave up: the disk is full");
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("error: rank 1 gave up: the disk is full", first + 1), std::string::npos)
      << outcome.output;
}

TEST_F(MpiFailure, ARankThatThrowsAnythingIsHeardByAll) {
  const Outcome outcome = launch(3, "throw-number 30");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(has(outcome, "error: 42")) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
  if (outcome.seconds > 2) return;
  EXPECT_TRUE(has(outcome, "error: rank 1 gave up: an exception of unknown type")) << outcome.output;
}

TEST_F(MpiFailure, AKilledRankEndsEverybody) {
  const Outcome outcome = launch(3, "kill 30");
  EXPECT_EQ(outcome.exit_code, 137) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
}

TEST_F(MpiFailure, ARankThatLeavesEndsEverybody) {
  const Outcome outcome = launch(3, "exit 30");
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
}

TEST_F(MpiFailure, AStoppedRankIsATimeout) {
  const Outcome outcome = launch(3, "stop 0.5");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(has(outcome, " waited ")) << outcome.output;
  EXPECT_TRUE(has(outcome, "in all_reduce \"grads\"")) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
}

}  // namespace
