// Why values are sharded as they are, and which collectives follow from it, as `trireme inspect graph` says.
#include "end_to_end/program.h"
#include "support/golden.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

// A line of a golden's input is a word of the command.
class InspectedSharding : public Program, public ::testing::WithParamInterface<Golden> {};

TEST_P(InspectedSharding, IsExplained) {
  check_golden(GetParam(), [&](const std::string& text, const GoldenOptions&) {
    std::vector<std::string> words = {"inspect", "graph"};
    for (const std::string& line : split(text, '\n'))
      if (!line.empty() && !line.starts_with("//")) words.push_back(line);
    return done(words).out;
  });
}

INSTANTIATE_TEST_SUITE_P(All, InspectedSharding, ::testing::ValuesIn(goldens("inspect")),
                         [](const auto& one) { return one.param.name; });

class InspectedNames : public Program {};

TEST_F(InspectedNames, ThatAreNotThereAreRefusedWithTheNearest) {
  expect_parts(refused({"inspect", "graph", "tiny.toml", "--parallel.mesh=tp=2", "--explain=*.dwn.weight"}),
               {"no parameter, input or value has such a name", "*.down.weight"});
}

}  // namespace
}  // namespace trireme::testing
