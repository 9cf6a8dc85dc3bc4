// Programs whose staging gives way are those that would have been compiled with less of it.
#include "trireme/compiler/staging.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/program/check.h"
#include "trireme/program/print.h"
#include "trireme/train/compile.h"

namespace trireme::compiler {
namespace {

class Staging : public ::testing::TestWithParam<const char*> {};

TEST_P(Staging, OfOtherSizeIsAsIfCompiledSo) {
  const train::Registry registry;
  const auto compiled = [&](std::size_t staging) {
    train::Config config = train::parse_config(
        "", "test",
        std::vector<std::string>{"model.layers=3", "model.width=32", "model.heads=2", "model.context=8",
                                 "model.vocab=50", "train.batch=4", "runtime.device=cpu", GetParam()});
    train::resolve_model(config, 50);
    return train::compile(config, registry, {.threads = 1, .staging = staging});
  };
  const Compiled whole = compiled(std::size_t{1} << 40);
  for (const std::size_t bytes : {program::kPage, 5 * program::kPage}) {
    const Compiled fresh = compiled(bytes);
    const Compiled moved = with_staging(whole, bytes);
    ASSERT_EQ(moved.roles.size(), fresh.roles.size());
    for (std::size_t r = 0; r < fresh.roles.size(); ++r) {
      const Role& a = moved.roles[r];
      const Role& b = fresh.roles[r];
      EXPECT_EQ(a.layout.staging_bytes, b.layout.staging_bytes);
      EXPECT_EQ(a.layout.bytes, b.layout.bytes);
      EXPECT_EQ(a.arena_bytes, b.arena_bytes);
      ASSERT_EQ(a.programs.size(), b.programs.size());
      for (std::size_t p = 0; p < b.programs.size(); ++p) {
        EXPECT_EQ(program::to_text(a.programs[p]), program::to_text(b.programs[p]));
        EXPECT_EQ(a.programs[p].lower_bound, b.programs[p].lower_bound);
        EXPECT_EQ(a.programs[p].state_bytes, b.programs[p].state_bytes);
        ASSERT_EQ(a.programs[p].buffers.size(), b.programs[p].buffers.size());
        for (std::size_t i = 0; i < b.programs[p].buffers.size(); ++i) {
          EXPECT_EQ(a.programs[p].buffers[i].offset, b.programs[p].buffers[i].offset) << b.programs[p].buffers[i].name;
          EXPECT_EQ(a.programs[p].buffers[i].bytes, b.programs[p].buffers[i].bytes) << b.programs[p].buffers[i].name;
        }
        program::check(a.programs[p]);
      }
    }
  }
  EXPECT_TRUE(std::any_of(whole.roles.begin(), whole.roles.end(), [](const Role& role) {
    return role.layout.staging_bytes > 5 * program::kPage;
  })) << "nothing gives way";
  EXPECT_EQ(program::to_text(with_staging(whole, std::size_t{1} << 40).roles[0].programs[0]),
            program::to_text(whole.roles[0].programs[0]));
}

INSTANTIATE_TEST_SUITE_P(Plans, Staging,
                         ::testing::Values("parallel.mesh=dp=1", "parallel.mesh=dp=2", "parallel.mesh=pp=2",
                                           "memory.offload=all", "parallel.server=sync"));

}  // namespace
}  // namespace trireme::compiler
