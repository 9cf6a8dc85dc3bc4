#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

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

// A fault planted in any one program of any role is found, whatever the program is for. Returns how many were planted.
std::size_t plant_in_every_program(Compiled& c) {
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
  return planted;
}

TEST_P(CheckRoles, LooksAtEveryProgram) {
  Compiled c = compiled();
  EXPECT_GT(plant_in_every_program(c), 3U);
}

// Nothing but this proof counts what ranks do together, so a compilation without it has nothing to report.
TEST_P(CheckRoles, HasBeenDoneByCompile) {
  const Compiled c = compiled();
  const program::TogetherReport proved = check_roles(c);
  EXPECT_GT(proved.collectives, 0U);
  EXPECT_EQ(c.together.collectives, proved.collectives);
  EXPECT_EQ(c.together.messages, proved.messages);
  EXPECT_EQ(proved.messages > 0, c.roles.size() > 1);
}

// Each stage drains by one of several programs, whichever step is the last.
TEST(CheckAsyncRoles, LooksAtEveryProgramOfAnAsynchronousPipeline) {
  const train::Registry registry;
  const std::vector<std::string> settings = {
      "model.family=gpt2",  "model.layers=3",      "model.width=16",     "model.heads=2",
      "model.context=8",    "model.vocab=32",      "train.batch=4",      "model.tie_embeddings=false",
      "runtime.device=cpu", "train.micro_batch=1", "parallel.mesh=pp=3", "parallel.pipeline=pipedream"};
  train::Config config = train::parse_config("", "test", settings);
  train::resolve_model(config, config.model.vocab);
  Compiled c = train::compile(config, registry, {.threads = 1});
  std::size_t drains = 0;
  for (const program::Program& program : c.roles.front().programs) drains += program.name.starts_with("drain") ? 1 : 0;
  EXPECT_EQ(drains, 3U);
  EXPECT_GT(plant_in_every_program(c), 9U);
}

// Programs that take turns are proved together with one of them each: those of a stage have to wait in the same order,
// also where another order would do no harm.
TEST(CheckAsyncRoles, ProgramsThatTakeTurnsHaveOneOrder) {
  const train::Registry registry;
  // Periods of 6, 5, 12, 6, 2 and 1 steps, which meet again after 60.
  const std::vector<std::string> settings = {
      "model.family=mlp",   "model.layers=7",       "model.width=8",      "model.image=4",
      "train.batch=7",      "train.micro_batch=1",  "parallel.mesh=pp=6", "parallel.pipeline=pipedream",
      "runtime.device=cpu", "data.images=synthetic"};
  train::Config config = train::parse_config("", "test", settings);
  train::resolve_model(config, 0);
  Compiled c = train::compile(config, registry, {.threads = 1});
  EXPECT_NO_THROW(check_roles(c));
  std::size_t planted = 0;
  for (Role& role : c.roles)
    for (program::Program& program : role.programs) {
      if (!program.name.starts_with("step.") && !program.name.starts_with("drain.")) continue;
      // A wait for the first event there is does no harm to what comes last.
      program::Instruction& last = program.instructions.back();
      const auto recorded = std::find_if(program.instructions.begin(), program.instructions.end() - 1,
                                         [](const program::Instruction& i) { return i.records != program::kNone; });
      if (recorded == program.instructions.end() - 1) continue;
      const std::vector<std::int32_t> waits = last.waits;
      last.waits.push_back(recorded->records);
      try {
        check_roles(c);
        ADD_FAILURE() << program.name << " of " << role.name;
      } catch (const Error& e) {
        EXPECT_NE(e.message().find("in different orders"), std::string::npos) << e.message();
      }
      last.waits = waits;
      ++planted;
    }
  EXPECT_GT(planted, 20U);
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

// Roles that meet in collectives: stages in loss and norm, places along h in gradients and statistics.
class CheckRoleValues : public ::testing::TestWithParam<const char*> {
 protected:
  Compiled compiled() const {
    train::Config config;
    config.model.family = "resnet";
    config.model.layers = 18;
    config.model.width = 4;
    config.model.image = 8;
    config.model.classes = 10;
    config.train.batch = 4;
    config.train.micro_batch = 2;
    config.parallel.bucket.count = 1;  // nothing goes together
    config.parallel.mesh = GetParam();
    train::resolve_model(config, 0);
    return train::compile(config, registry_, {});
  }

  // What two collectives do, and not when.
  static void swap_work(program::Instruction& a, program::Instruction& b) {
    std::swap(a, b);
    std::swap(a.stream, b.stream);
    std::swap(a.waits, b.waits);
    std::swap(a.records, b.records);
  }
  // Two of the values that one makes.
  static void swap_values(program::Instruction& i, std::size_t a, std::size_t b) {
    std::swap(i.of[a], i.of[b]);
    std::swap(i.inputs[a], i.inputs[b]);
    std::swap(i.outputs[a], i.outputs[b]);
  }
  static Compiled nameless(Compiled c) {
    for (Role& role : c.roles)
      for (program::Program& p : role.programs)
        for (program::Instruction& i : p.instructions) i.of.clear();
    return c;
  }
  train::Registry registry_;
};

// A role that takes two sums in another order than those it meets adds up what does not belong together, at no risk of
// a deadlock: names alone show it.
TEST_P(CheckRoleValues, TwoSumsSwappedInOneRoleAreNamed) {
  Compiled c = compiled();
  std::size_t planted = 0;
  for (const program::Group& group : c.groups) {
    if (group.roles.size() < 2 || !group.messages.empty()) continue;
    const std::string axes = fmt::format("{}", fmt::join(group.axes, "+"));
    program::Program& step =
        *std::find_if(c.roles[group.roles.back()].programs.begin(), c.roles[group.roles.back()].programs.end(),
                      [](const program::Program& p) { return p.name == "step"; });
    const auto expect_named = [&](const std::string& one, const std::string& other) {
      ++planted;
      EXPECT_NO_THROW(check_roles(nameless(c)));
      try {
        check_roles(c);
        ADD_FAILURE() << "nothing is said about " << one << " and " << other;
      } catch (const Error& e) {
        for (const std::string& name : {one, other})
          EXPECT_NE(e.message().find("'" + name + "'"), std::string::npos) << e.message();
      }
    };
    program::Instruction* before = nullptr;
    for (program::Instruction& i : step.instructions) {
      if (i.kind != program::Instruction::Kind::collective || i.attributes.text("axis") != axes) continue;
      for (std::size_t v = 1; v < i.of.size(); ++v) {
        if (i.inputs[v - 1].type != i.inputs[v].type) continue;
        swap_values(i, v - 1, v);
        expect_named(i.of[v - 1], i.of[v]);
        swap_values(i, v - 1, v);
      }
      program::Instruction* const last = std::exchange(before, &i);
      if (last == nullptr || last->op != i.op || last->inputs.size() != 1 || i.inputs.size() != 1 ||
          last->inputs[0].type != i.inputs[0].type || last->attributes != i.attributes)
        continue;
      swap_work(*last, i);
      expect_named(last->of.front(), i.of.front());
      swap_work(*last, i);
    }
  }
  EXPECT_GT(planted, 0U);
  EXPECT_NO_THROW(check_roles(c));
}

// By which the check goes.
TEST_P(CheckRoleValues, EveryCollectiveOfAProgramHasANameOfItsOwn) {
  const Compiled c = compiled();
  for (const Role& role : c.roles)
    for (const program::Program& p : role.programs) {
      std::set<std::tuple<std::string, std::int32_t, ir::Phase>> known;
      for (const program::Instruction& i : p.instructions)
        for (const std::string& name : i.of)
          EXPECT_TRUE(known.emplace(name, i.micro, i.phase).second) << name << " of " << p.name << " of " << role.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CheckRoleValues, ::testing::Values("pp=2", "h=2", "h=3,dp=2", "pp=2,h=2"));

INSTANTIATE_TEST_SUITE_P(Meshes, CheckRoles, ::testing::Values("dp=2", "pp=2", "tp=2", "pp=2,dp=2", "dp=2;sync"));

}  // namespace
}  // namespace trireme::compiler
