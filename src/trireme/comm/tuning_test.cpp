#include "trireme/comm/tuning.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace trireme::comm {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_tuning(text, "file");
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

TEST(Tuning, TheRuleWithoutMeasurements) {
  EXPECT_EQ(choose({}, TransportKind::threads, Collective::all_reduce, 100, 4), Algorithm::native);
  EXPECT_EQ(choose({}, TransportKind::mpi, Collective::all_gather, 1 << 20, 4), Algorithm::native);
  EXPECT_EQ(choose({}, TransportKind::emulated, Collective::all_reduce, 100, 4), Algorithm::recursive);
  EXPECT_EQ(choose({}, TransportKind::emulated, Collective::all_reduce, 1 << 20, 4), Algorithm::ring);
}

TEST(Tuning, TextBothWays) {
  const Tuning tuning = parse_tuning("# x\nemulated 4 1024 tree\n emulated 4 65536 recursive \n", "file");
  EXPECT_EQ(parse_tuning(to_text(tuning), "again").entries.size(), 2U);
  EXPECT_EQ(choose(tuning, TransportKind::emulated, Collective::all_reduce, 1024, 4), Algorithm::tree);
  EXPECT_EQ(choose(tuning, TransportKind::emulated, Collective::all_reduce, 1025, 4), Algorithm::recursive);
  EXPECT_EQ(choose(tuning, TransportKind::emulated, Collective::all_reduce, 1 << 20, 4), Algorithm::ring);
  EXPECT_EQ(choose(tuning, TransportKind::emulated, Collective::all_reduce, 1024, 5), Algorithm::recursive);
  EXPECT_EQ(message_of("emulated 4 1024"), "file:1: expected \"transport ranks bytes algorithm\"");
  EXPECT_EQ(message_of("\ntelepathy 4 1024 ring"),
            "file:2: unknown transport \"telepathy\": one of threads, emulated, mpi");
  EXPECT_EQ(message_of("mpi 4x 1024 ring"), "file:1: \"4x\" is not a number");
  EXPECT_EQ(message_of("mpi 4 1024 rings"),
            "file:1: unknown all-reduce algorithm \"rings\": did you mean \"ring\"? One of auto, native, sequential, "
            "parallel, ring, recursive, tree");
}

TEST(Tuning, KeptPerMachine) {
  const std::string folder = testing::TempDir() + "trireme_tuning";
  std::filesystem::remove_all(folder);
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  EXPECT_EQ(tuning_file(), folder + "/trireme/all_reduce.txt");
  EXPECT_TRUE(load_tuning(tuning_file()).entries.empty());
  save_tuning({{{TransportKind::mpi, 2, 4096, Algorithm::parallel}}}, tuning_file());
  EXPECT_EQ(load_tuning(tuning_file()).entries.at(0).algorithm, Algorithm::parallel);
}

}  // namespace
}  // namespace trireme::comm
