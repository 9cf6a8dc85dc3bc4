#include "trireme/core/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace trireme {
namespace {

namespace fs = std::filesystem;

class Cgroup : public ::testing::Test {
 protected:
  Cgroup() : folder_(fs::temp_directory_path() / ("trireme-cgroup-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Cgroup() override { fs::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  std::optional<std::uint64_t> limit(const std::string& groups) const {
    write("self", groups);
    return cgroup_memory_limit(folder_ / "self", folder_ / "mount");
  }

  fs::path folder_;
};

TEST_F(Cgroup, TheSmallestLimitOnTheWayDownCounts) {
  write("mount/jobs/memory.max", "4000000\n");
  write("mount/jobs/7/memory.max", "max\n");
  EXPECT_EQ(limit("0::/jobs/7\n"), 4000000U);
  write("mount/jobs/7/memory.max", "3000000\n");
  EXPECT_EQ(limit("0::/jobs/7\n"), 3000000U);
}

TEST_F(Cgroup, OfTheFirstVersion) {
  write("mount/memory/jobs/memory.limit_in_bytes", "5000000\n");
  write("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit("9:cpu,cpuacct:/\n4:memory:/jobs\n0::/\n"), 5000000U);
}

// In a container the group's own path is that of the host, and its root is mounted.
TEST_F(Cgroup, InAContainer) {
  write("mount/memory.max", "6000000\n");
  EXPECT_EQ(limit("0::/docker/1234\n"), 6000000U);
}

TEST_F(Cgroup, WithoutALimit) {
  write("mount/jobs/memory.max", "max\n");
  EXPECT_FALSE(limit("0::/jobs\n").has_value());
  EXPECT_FALSE(limit("").has_value());
  EXPECT_FALSE(cgroup_memory_limit(folder_ / "none", folder_ / "none").has_value());
}

TEST(Memory, IsNoMoreThanTheGroupHas) {
  EXPECT_GT(usable_memory(), 0U);
  if (const auto limit = cgroup_memory_limit()) {
    EXPECT_LE(usable_memory(), *limit);
  }
}

}  // namespace
}  // namespace trireme
