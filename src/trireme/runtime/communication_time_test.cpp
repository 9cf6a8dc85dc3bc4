#include "trireme/runtime/communication_time.h"

#include <gtest/gtest.h>

namespace trireme::runtime {
namespace {

using program::Instruction;

constexpr std::int32_t kCompute = 0;

// A kernel from 0 to 10 ms, a collective from 4 to 16, a kernel from 12 to 20 and one on another stream from 14 to 15;
// twice.
class CommunicationTimeTest : public ::testing::Test {
 protected:
  CommunicationTimeTest() {
    add(Instruction::Kind::launch, kCompute);
    add(Instruction::Kind::collective, program::kCommStream);
    add(Instruction::Kind::launch, kCompute);
    add(Instruction::Kind::launch, program::kGradientStream);
    for (const int run : {0, 100}) {
      record(0, run, run + 10);
      record(1, run + 4, run + 16);
      record(2, run + 12, run + 20);
      record(3, run + 14, run + 15);
    }
  }

  void add(Instruction::Kind kind, std::int32_t stream) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.stream = stream;
    program.instructions.push_back(instruction);
  }
  void record(std::size_t i, int begin, int end) {
    const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
    trace.record({label, program.instructions[i].stream, at(begin), at(end)});
  }

  program::Program program;
  Trace trace{8};
  std::uint32_t label = trace.label("x", "forward");
  Trace::Clock::time_point start = Trace::Clock::now();
};

TEST_F(CommunicationTimeTest, IsHiddenWhileSomethingIsComputed) {
  const CommunicationTime time = communication_time(trace, program);
  EXPECT_NEAR(time.seconds, 2 * 0.012, 1e-9);
  EXPECT_NEAR(time.hidden, 2 * 0.010, 1e-9);
  EXPECT_NEAR(time.hidden_share(), 10.0 / 12, 1e-6);
}

TEST_F(CommunicationTimeTest, OfWhatIsAskedFor) {
  const CommunicationTime none = communication_time(trace, program, [](const Instruction&) { return false; });
  EXPECT_EQ(none.seconds, 0);
  EXPECT_EQ(none.hidden_share(), 0);
}

}  // namespace
}  // namespace trireme::runtime
