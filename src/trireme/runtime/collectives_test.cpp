#include "trireme/runtime/collectives.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::runtime {
namespace {

// A rank that goes on to another group's collective records that group's events, and none that others still wait for.
TEST(Collectives, EachGroupHasEventsOfItsOwn) {
  program::Program p;
  for (const char* axes : {"tp", "dp", "tp", "dp+tp", "dp"}) {
    program::Instruction i;
    i.kind = program::Instruction::Kind::collective;
    i.attributes = {{"axis", std::string(axes)}};
    p.instructions.push_back(i);
  }
  p.instructions[1].records = 4;
  const std::map<std::string, std::size_t> events = events_of_groups(p);
  EXPECT_EQ(events.size(), 3U);
  std::set<std::size_t> all;
  for (const auto& [axes, first] : events)
    for (std::size_t e = 0; e < comm::DeviceGroup::kEvents; ++e) {
      EXPECT_TRUE(all.insert(first + e).second) << axes;
      EXPECT_GE(first + e, static_cast<std::size_t>(p.events())) << axes;
      EXPECT_LT(first + e, static_cast<std::size_t>(p.events()) + events.size() * comm::DeviceGroup::kEvents) << axes;
    }
}

}  // namespace
}  // namespace trireme::runtime
