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

// What a table does not show is not asked for in vain.
TEST_F(InspectedNames, OptionsThatSayNothingOfATableAreRefused) {
  const std::vector<std::string> graph = {"inspect", "graph", "tiny.toml", "--parallel.mesh=tp=2"};
  const auto expect_refusal = [&](const std::vector<std::string>& more, const std::string& part) {
    std::vector<std::string> words = graph;
    words.insert(words.end(), more.begin(), more.end());
    expect_part(refused(words), part);
  };
  for (const char* other : {"--graph=micro", "--after=autodiff", "--dot"}) {
    const std::string name = std::string(other).substr(0, std::string(other).find('='));
    expect_refusal({"--collectives", other}, "error: --collectives shows ");
    expect_refusal({"--collectives", other}, "of which " + name + " says nothing");
    expect_refusal({"--explain=*.weight", other}, "of which " + name + " says nothing");
  }
  expect_refusal({"--explain=*.weight", "--collectives"}, "of which --collectives says nothing");
  expect_refusal({"--explain=*.weight", "--rank=1"}, "of which --rank says nothing");
  done({"inspect", "graph", "tiny.toml", "--parallel.mesh=tp=2", "--collectives", "--rank=1"});
}

TEST_F(InspectedNames, ThatAreNotThereAreRefusedWithTheNearest) {
  expect_parts(refused({"inspect", "graph", "tiny.toml", "--parallel.mesh=tp=2", "--explain=*.dwn.weight"}),
               {"no parameter, input or value has such a name", "*.down.weight"});
  // "*." stands for a part before: a name that has none is proposed as it is.
  const std::vector<std::string> train = {"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2"};
  const auto with = [&](const std::string& word) {
    std::vector<std::string> words = train;
    words.push_back(word);
    return words;
  };
  expect_part(refused(with("--parallel.sharding.*.wte.weight=1:dp")), "; the nearest is \"wte.weight\"");
  expect_part(refused(with("--parallel.sharding.*.wt.weight=1:dp")), "; the nearest is \"wte.weight\"");
  expect_part(refused(with("--parallel.sharding.*.mlp.dwn.weight=1:dp")), "; the nearest is \"*.mlp.down.weight\"");
  done(with("--parallel.sharding.wte.weight=1:dp"));
}

}  // namespace
}  // namespace trireme::testing
