#include "trireme/program/collectives.h"

#include "trireme/program/check_fixture.h"

namespace trireme::program {
namespace {

using CollectivesTest = CheckTest;

// A launch that a copy waits for may move up with its collective. What stays in front of the copy is then another
// launch: memory that is free behind it is free for the copy, which has to wait for it.
TEST_F(CollectivesTest, CopiesWaitForTheLaunchThatIsBeforeThemNow) {
  type = {DType::f32, {64}};  // scalars are not worth moving
  const BufferId x = page("x", 0, 0);
  const BufferId gradient = page("gradient", 0, 1);
  const BufferId last = page("last", 0, 2);
  const BufferId momentum = page("momentum", 0, 3);
  const BufferId sum = page("sum", 0, 4);
  const BufferId away = page("away", 2, 0);
  const BufferId loaded = page("loaded", 0, 5);
  input(x);
  launch("scale", {x}, gradient);
  launch("scale", {x}, last);
  Instruction& early = launch("scale", {gradient}, momentum);
  early.phase = ir::Phase::update;
  early.records = 0;
  load(away, loaded).waits = {0};
  Instruction& reduce = launch("all_reduce", {momentum}, sum);
  reduce.kind = Instruction::Kind::collective;
  reduce.phase = ir::Phase::update;
  reduce.attributes = {{"axis", std::string("dp")}};

  schedule_collectives(p, {});

  const auto place = [&](const std::string& name) {
    const auto found = std::find_if(p.instructions.begin(), p.instructions.end(),
                                    [&](const Instruction& i) { return i.name == name; });
    return static_cast<std::size_t>(found - p.instructions.begin());
  };
  ASSERT_LT(place("momentum"), place("last"));
  ASSERT_LT(place("last"), place("loaded"));
  const Instruction& before = p.instructions[place("last")];
  const std::vector<std::int32_t>& waits = p.instructions[place("loaded")].waits;
  ASSERT_NE(before.records, kNone);
  EXPECT_NE(std::find(waits.begin(), waits.end(), before.records), waits.end());
}

}  // namespace
}  // namespace trireme::program
