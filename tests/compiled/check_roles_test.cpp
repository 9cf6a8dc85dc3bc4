#include <gtest/gtest.h>

#include "trireme/compiler/compile.h"
#include "trireme/core/error.h"
#include "trireme/train/compile.h"

namespace trireme::compiler {
namespace {

class CheckRoles : public ::testing::TestWithParam<const char*> {
 protected:
  Compiled compiled() const {
    train::Config config;
    config.model.family = "gpt2";
    config.model.layers = 2;
    config.model.width = 16;
    config.model.heads = 2;
    config.model.context = 8;
    config.model.vocab = 32;
    config.train.batch = 4;
    config.train.optimizer = "adamw";
    const std::string setting = GetParam();
    const std::size_t at = setting.find(';');
    config.parallel.mesh = setting.substr(0, at);
    config.parallel.server = at == std::string::npos ? "none" : setting.substr(at + 1);
    train::resolve_model(config, config.model.vocab);
    return train::compile(config, registry_, {});
  }
  train::Registry registry_;
};

// A fault planted in any one program of any role is found, whatever the program is for.
TEST_P(CheckRoles, LooksAtEveryProgram) {
  Compiled c = compiled();
  check_roles(c);
  std::size_t planted = 0;
  for (Role& role : c.roles)
    for (program::Program& program : role.programs) {
      if (program.instructions.empty()) continue;
      program::Instruction& first = program.instructions.front();
      const std::vector<std::int32_t> waits = first.waits;
      first.waits.push_back(1'000'000);
      EXPECT_THROW(check_roles(c), Error) << program.name << " of " << role.name;
      first.waits = waits;
      ++planted;
    }
  EXPECT_GT(planted, 3U);
}

// A role for which others would wait is missed in every program that they run together.
TEST_P(CheckRoles, MissesARoleWithoutItsProgram) {
  Compiled c = compiled();
  if (c.roles.size() < 2 || c.roles.back().exchange) GTEST_SKIP() << "all ranks share one role";
  for (const char* name : {"step", "eval"}) {
    Compiled without = c;
    std::erase_if(without.roles.back().programs, [&](const program::Program& p) { return p.name == name; });
    EXPECT_THROW(check_roles(without), Error) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CheckRoles, ::testing::Values("dp=2", "pp=2", "tp=2", "pp=2,dp=2", "dp=2;sync"));

}  // namespace
}  // namespace trireme::compiler
