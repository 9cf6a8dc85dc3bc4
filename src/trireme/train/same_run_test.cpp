#include "trireme/train/same_run.h"

#include <gtest/gtest.h>

#include <array>

#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/train/compile.h"

namespace trireme::train {
namespace {

class SamePrograms : public ::testing::Test {
 protected:
  Compiled compiled(const std::string& setting) const {
    const std::vector<std::string> settings = {
        "model.family=gpt2", "model.layers=2", "model.width=16",     "model.heads=2",      "model.context=8",
        "model.vocab=32",    "train.batch=4",  "runtime.device=cpu", "parallel.mesh=dp=2", setting};
    Config config = parse_config("", "test", settings);
    resolve_model(config, config.model.vocab);
    return compile(config, registry_, {.threads = 1});
  }

  Registry registry_;
};

// What two processes that compiled so say of each other; empty: they go together.
std::string said_of(const Compiled& one, const Compiled& other) {
  std::array<std::string, 2> said;
  comm::threads::run(2, {.link = "", .timeout = 60}, [&](comm::Communicator& world) {
    try {
      check_same_programs(world.rank() == 0 ? one : other, world);
    } catch (const Error& e) {
      said[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  EXPECT_EQ(said[0], said[1]);
  return said[0];
}

TEST_F(SamePrograms, ProcessesThatWouldExchangeOtherThingsAreRefused) {
  const Compiled plain = compiled("parallel.zero=0");
  EXPECT_EQ(said_of(plain, compiled("parallel.zero=0")), "");
  for (const char* setting : {"parallel.bucket=1KiB", "parallel.zero=1", "parallel.zero=3"})
    EXPECT_NE(said_of(plain, compiled(setting)).find("rank 0 and rank 1 differ in what 'step'"), std::string::npos)
        << setting;
}

// Two sums of one size that one of them makes in the other order.
TEST_F(SamePrograms, ValuesAreCompared) {
  const Compiled plain = compiled("parallel.bucket=1KiB");
  Compiled other = plain;
  program::Program* step = nullptr;
  for (program::Program& p : other.roles.front().programs)
    if (p.name == "step") step = &p;
  ASSERT_NE(step, nullptr);
  std::vector<program::Instruction*> sums;
  for (program::Instruction& i : step->instructions)
    if (i.kind == program::Instruction::Kind::collective) sums.push_back(&i);
  ASSERT_GT(sums.size(), 1U);
  std::swap(sums[0]->of, sums[1]->of);
  EXPECT_NE(said_of(plain, other), "");
}

}  // namespace
}  // namespace trireme::train
