#include "trireme/core/aside.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace trireme {
namespace {

std::string by(std::string name, int process) {
  const std::string own = fmt::format("-{}-", ::getpid());
  return name.replace(name.rfind(own), own.size(), fmt::format("-{}-", process));
}

// Only what a process of this machine has left under such a name is abandoned.
TEST(Aside, WhatIsAbandonedSaysSo) {
  constexpr int kNobody = (1 << 30) - 1;  // beyond any process's number
  const std::string path = aside_name("runs/exp.new-20261119", "new", 0);
  EXPECT_TRUE(path.starts_with("runs/.exp.new-20261119.trireme-new-")) << path;
  const std::string name = std::filesystem::path(path).filename().string();
  EXPECT_FALSE(is_abandoned(name, "new")) << "this process lives";
  EXPECT_FALSE(is_abandoned(by(name, ::getppid()), "new"));
  const std::string left = by(name, kNobody);
  EXPECT_TRUE(is_abandoned(left, "new"));
  EXPECT_FALSE(is_abandoned(left, "part"));
  EXPECT_FALSE(is_abandoned(left + "x", "new"));
  EXPECT_FALSE(is_abandoned(left.substr(1), "new"));
  EXPECT_FALSE(is_abandoned(fmt::format("exp.new-{}", kNobody), "new"));
  EXPECT_FALSE(is_abandoned(fmt::format(".exp.trireme-new-{}-0", kNobody), "new"));
  EXPECT_FALSE(is_abandoned(fmt::format(".exp.trireme-new-elsewhere.example-{}-0", kNobody), "new"));
  // However long the name is, this one is a name too.
  EXPECT_LT(std::filesystem::path(aside_name(std::string(250, 'a'), "export", 12)).filename().string().size(), 255U);
}

}  // namespace
}  // namespace trireme
