#include "trireme/train/same_run.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>
#include <thread>

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

// What the first process takes long for is no reason for the others to give up.
TEST(MadeByFirst, OthersWaitLongerThanTheTimeout) {
  std::array<std::string, 3> texts;
  comm::threads::run(3, {.link = "", .timeout = 0.2}, [&](comm::Communicator& world) {
    texts[static_cast<std::size_t>(world.rank())] = made_by_first(
        [] {
          std::this_thread::sleep_for(std::chrono::milliseconds(800));
          return std::string("a plan");
        },
        world);
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "a plan");
}

TEST(ChangedByFirst, AllHaveItsKeysAndTheirOwnOfTheMachine) {
  const auto config_of = [](int rank) {
    const std::vector<std::string> settings = {"parallel.mesh=tp=2", "parallel.sharding.*.up.weight=out:tp",
                                               fmt::format("runtime.threads={}", rank + 1)};
    return parse_config("", "test", settings);
  };
  std::array<Config, 2> changed;
  comm::threads::run(2, {.link = "", .timeout = 60}, [&](comm::Communicator& world) {
    const auto by_first = [](Config config) {
      config.parallel.zero = 3;
      config.parallel.mesh = "dp=2";
      config.memory.remat = "every:2";
      config.parallel.sharding = {{"*.down.weight", "in:tp"}};
      return config;
    };
    changed[static_cast<std::size_t>(world.rank())] =
        changed_by_first(config_of(world.rank()), by_first, world, models::builtin_families());
  });
  for (const Config& config : changed) {
    EXPECT_EQ(config.parallel.zero, 3);
    EXPECT_EQ(config.parallel.mesh, "dp=2");
    EXPECT_EQ(config.memory.remat.text(), "every:2");
    EXPECT_EQ(config.parallel.sharding, (std::map<std::string, std::string>{{"*.down.weight", "in:tp"}}));
  }
  EXPECT_EQ(changed[0].runtime.threads, 1);
  EXPECT_EQ(changed[1].runtime.threads, 2);
}

}  // namespace
}  // namespace trireme::train
