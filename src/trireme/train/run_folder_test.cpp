#include "trireme/train/run_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "support/folder.h"
#include "trireme/core/aside.h"

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

// What a process that was killed has left while it made a run's folder is taken away at a run's next start there; what
// only looks like it stays: another run, whatever it is called.
TEST(RunFolder, WhatWasAbandonedWhileItWasMadeIsRemoved) {
  namespace fs = std::filesystem;
  const test::Folder folder;
  const fs::path run = folder.path("run");
  constexpr int kNobody = (1 << 30) - 1;  // beyond any process's number
  std::string name = fs::path(aside_name(run.string(), "new", 0)).filename().string();
  const std::string own = fmt::format("-{}-", ::getpid());
  const std::string alive = name;
  name.replace(name.rfind(own), own.size(), fmt::format("-{}-", kNobody));
  folder.write(name + "/.trireme-new", "");
  folder.write(name + "/config.toml", "");
  folder.write(alive + "/.trireme-new", "");
  folder.write(name + "1/config.toml", "no marker");
  folder.write(fmt::format("run.new-{}/config.toml", kNobody), "a run");
  const RunLock lock = open_run_folder(run, {}, RunMode::fresh, "{}");
  EXPECT_TRUE(holds_run(run));
  EXPECT_FALSE(fs::exists(run / ".trireme-new"));
  EXPECT_FALSE(fs::exists(folder.path(name)));
  EXPECT_TRUE(fs::exists(folder.path(alive)));
  EXPECT_TRUE(fs::exists(folder.path(name + "1/config.toml")));
  EXPECT_TRUE(fs::exists(folder.path(fmt::format("run.new-{}/config.toml", kNobody))));
}

TEST(RunFolder, WhatIsNoRunsIsNotReplaced) {
  const test::Folder folder;
  folder.write("mine/vocab.json", "{}");
  folder.write("configured/config.toml", "");
  folder.write("logged/log.txt", "");
  const auto refused = [&](const char* name, bool copies) {
    return test::refusal([&] { check_replaces_runs_only(folder.path(name), "it", copies); });
  };
  EXPECT_EQ(refused("mine", true),
            "it holds no run, and has a vocab.json that a run there would replace; move it away, or name another "
            "folder");
  check_replaces_runs_only(folder.path("mine"), "it", false);
  test::expect_contains(refused("configured", false), "it has a config.toml and no run");
  test::expect_contains(test::refusal([&] { check_is_free(folder.path("configured")); }),
                        "has a config.toml and no run");
  test::expect_contains(refused("logged", false), "has a log.txt");
  folder.write("mine/metrics.jsonl", "");  // now it is a run
  check_replaces_runs_only(folder.path("mine"), "it", true);
  check_replaces_runs_only(folder.path("none"), "it", true);
}

}  // namespace
}  // namespace trireme::train
