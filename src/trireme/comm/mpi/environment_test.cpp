#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/mpi/session.h"

namespace trireme::comm::mpi {
namespace {

// The variables of launchers, as a test gives them; those of its own launcher come back.
class LauncherEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames)
      if (const char* text = std::getenv(name); text != nullptr) before_[name] = text;
  }
  void TearDown() override { give(before_); }

  static void give(const std::map<std::string, std::string>& variables) {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, text] : variables) setenv(name.c_str(), text.c_str(), 1);
  }
  // Of a rank that srun has started, with `size` in its step.
  static int here(int size, std::map<std::string, std::string> variables) {
    variables["SLURM_PROCID"] = "0";
    variables["SLURM_STEP_NUM_TASKS"] = std::to_string(size);
    give(variables);
    return launched().value_or(Launched{}).here;
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALNRANKS",
                                           "MV2_COMM_WORLD_RANK",
                                           "MV2_COMM_WORLD_SIZE",
                                           "MV2_COMM_WORLD_LOCAL_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_NODEID",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_TASKS_PER_NODE",
                                           "SLURM_NTASKS_PER_NODE"};
  std::map<std::string, std::string> before_;
};

// `srun -n 2 -N 2` without --ntasks-per-node, whose variable is then missing.
TEST_F(LauncherEnvironment, PlainSrunOnTwoNodes) {
  EXPECT_EQ(here(2, {{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}}), 1);
  EXPECT_EQ(launched()->launcher, "srun");
  EXPECT_EQ(launched()->size, 2);
  EXPECT_EQ(here(2, {{"SLURM_TASKS_PER_NODE", "2"}}), 2);
}

TEST_F(LauncherEnvironment, EachNodeHasItsOwnNumberOfTasks) {
  const std::string nodes = "2(x3),1,4(x2)";
  const std::vector<int> tasks = {2, 2, 2, 1, 4, 4};
  for (std::size_t node = 0; node < tasks.size(); ++node)
    EXPECT_EQ(here(15, {{"SLURM_STEP_TASKS_PER_NODE", nodes}, {"SLURM_NODEID", std::to_string(node)}}), tasks[node]);
  EXPECT_EQ(here(15, {{"SLURM_STEP_TASKS_PER_NODE", nodes}}), 4);
  EXPECT_EQ(here(15, {{"SLURM_STEP_TASKS_PER_NODE", nodes}, {"SLURM_NODEID", "6"}}), 4);
}

// A job's variables are there in a step that has fewer tasks.
TEST_F(LauncherEnvironment, AListOfOtherTasksDoesNotCount) {
  EXPECT_EQ(here(2, {{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}, {"SLURM_TASKS_PER_NODE", "8(x2)"}}), 1);
  EXPECT_EQ(here(2, {{"SLURM_TASKS_PER_NODE", "8(x2)"}}), 2);
  EXPECT_EQ(here(4, {{"SLURM_TASKS_PER_NODE", "8(x2)"}, {"SLURM_NTASKS_PER_NODE", "2"}}), 2);
  EXPECT_EQ(here(4, {{"SLURM_NTASKS_PER_NODE", "8"}}), 4);
  for (const char* text : {"", "1(x2", "1(2)", "(x2)", "1,", "1(x2)x", "-1,3", "1(x0)", "2(x99999999999)", "x"})
    EXPECT_EQ(here(2, {{"SLURM_TASKS_PER_NODE", text}}), 2) << text;
}

TEST_F(LauncherEnvironment, OtherLaunchersSayIt) {
  give({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(launched()->here, 4);
  // srun --mpi=pmi2
  give({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}, {"SLURM_NODEID", "0"}});
  EXPECT_EQ(launched()->here, 2);
  give({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ(launched()->here, 8);
}

}  // namespace
}  // namespace trireme::comm::mpi
