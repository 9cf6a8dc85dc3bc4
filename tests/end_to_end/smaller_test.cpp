// Pruning and distillation as a person uses them.
#include <gtest/gtest.h>

#include <algorithm>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

using Smaller = Program;

const std::vector<std::string> kPrune = {"--prune.method=magnitude", "--prune.begin=1", "--prune.end=5",
                                         "--prune.every=2"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Masks and scores are part of what a run goes on with.
TEST_F(Smaller, APrunedRunThatWasCutEndsAsTheUndisturbedOne) {
  for (const char* method : {"magnitude", "movement"}) {
    const std::vector<std::string> keys =
        with(kPrune, {std::string("--prune.method=") + method, "--train.decay_steps=6", "--overwrite"});
    done(with({"train", "tiny.toml", "--output.dir=whole"}, keys));
    done(with({"train", "tiny.toml", "--output.dir=cut", "--train.steps=3"}, keys));
    std::vector<std::string> rest =
        with({"train", "tiny.toml", "--output.dir=cut", "--train.steps=6", "--resume"}, keys);
    rest.pop_back();
    done(rest);
    EXPECT_EQ(state("cut", 6), state("whole", 6));
  }
}

TEST_F(Smaller, BadPruningIsRefusedByKey) {
  const auto expect = [&](const std::vector<std::string>& keys, const char* part) {
    const std::string said = refused(with({"train", "tiny.toml", "--output.dir=none"}, keys));
    EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_FALSE(exists("none"));
  };
  expect({"--prune.sparsity=0.5", "--prune.pattern=2:4"}, "prune.pattern");
  expect({"--prune.method=magnitude", "--prune.sparsity=1"}, "prune.sparsity");
  expect({"--prune.method=magnitude", "--prune.begin=100"}, "prune.");
  expect({"--prune.method=magnitude", "--prune.pattern=channels"}, "channels");
  expect({"--prune.method=magnitude", "--prune.pattern=blocks"}, "trireme compress");
  expect({"--prune.method=magnitud"}, "magnitude");
  expect({"--prune.method=magnitude", "--parallel.server=sync"}, "parallel.server");
  expect({"--distil.alpha=0.9"}, "distil.teacher");
  expect({"--distil.teacher=nowhere"}, "distil.teacher = \"nowhere\"");
}

TEST_F(Smaller, AStudentLearnsFromARun) {
  done({"train", "tiny.toml", "--output.dir=teacher"});
  const std::vector<std::string> student = {"train",
                                            "tiny.toml",
                                            "--model.layers=1",
                                            "--distil.teacher=teacher",
                                            "--distil.hidden=0.1",
                                            "--train.decay_steps=6"};
  done(with(student, {"--output.dir=whole"}));
  done(with(student, {"--output.dir=cut", "--train.steps=3"}));
  done(with(student, {"--output.dir=cut", "--train.steps=6", "--resume"}));
  EXPECT_EQ(state("cut", 6), state("whole", 6));
  const std::string said =
      refused({"train", "tiny.toml", "--output.dir=other", "--distil.teacher=teacher", "--model.vocab=300"});
  EXPECT_NE(said.find("distil.teacher"), std::string::npos) << said;
  EXPECT_NE(said.find("model.vocab = 300"), std::string::npos) << said;
}

}  // namespace
}  // namespace trireme::testing
