#include "trireme/train/run_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "support/folder.h"

namespace trireme::train {
namespace {

TEST(RunLock, AFolderThatCannotBeLockedIsRefused) {
  const test::Folder folder;
  const std::string message = test::refusal([&] { const RunLock lock(folder.path("missing")); });
  test::expect_contains(message, "cannot be locked");
  test::expect_contains(message, "missing");
  const RunLock first(folder.path());
  test::expect_contains(test::refusal([&] { const RunLock second(folder.path()); }), "another process");
}

// What a process that was killed has left while it made a run's folder is taken away at the run's next start; that of
// a process which lives, or of another run, stays.
TEST(RunFolder, WhatWasAbandonedWhileItWasMadeIsRemoved) {
  namespace fs = std::filesystem;
  const test::Folder folder;
  const fs::path run = folder.path("run");
  constexpr int kNobody = (1 << 30) - 1;  // beyond any process's number
  const fs::path abandoned = fmt::format("{}.new-{}", run.string(), kNobody);
  const std::vector<fs::path> others = {fmt::format("{}.new-{}", run.string(), ::getppid()),
                                        fmt::format("{}er.new-{}", run.string(), kNobody),
                                        fmt::format("{}.new-{}x", run.string(), kNobody)};
  fs::create_directories(abandoned);
  std::ofstream(abandoned / "config.toml") << "";
  for (const fs::path& other : others) fs::create_directories(other);
  const RunLock lock = open_run_folder(run, {}, RunMode::fresh, "{}");
  EXPECT_TRUE(holds_run(run));
  EXPECT_FALSE(fs::exists(abandoned));
  for (const fs::path& other : others) EXPECT_TRUE(fs::exists(other)) << other;
}

}  // namespace
}  // namespace trireme::train
