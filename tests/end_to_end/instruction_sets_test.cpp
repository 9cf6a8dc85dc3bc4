// One plan gives the same bytes on every CPU: oneDNN is made to believe in older ones.
#include <array>
#include <cstdlib>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class InstructionSets : public Program {
 protected:
  ~InstructionSets() override { ::unsetenv(kVariable); }
  static void choose(const char* set) { ::setenv(kVariable, set, 1); }

  static constexpr const char* kVariable = "ONEDNN_MAX_CPU_ISA";
  // The first is the newest that is used here.
  static constexpr std::array kSets = {"AVX512_CORE_AMX", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2", "SSE41"};
};

TEST_F(InstructionSets, ProgramsAreTheSameOnEveryCpu) {
  const std::vector<std::vector<std::string>> models = {
      {"tiny.toml"},
      {"tiny.toml", "--train.precision=bf16", "--train.micro_batch=2"},
      {"quickstart", "--model.layers=2", "--model.width=96", "--model.heads=3", "--train.precision=bf16"},
      {"resnet18", "--model.image=32", "--model.width=16", "--train.batch=8"},
      {"resnet18", "--model.image=32", "--model.width=24", "--train.batch=6", "--train.precision=bf16"},
  };
  for (const std::vector<std::string>& model : models) {
    std::vector<std::string> words = {"inspect", "program"};
    words.insert(words.end(), model.begin(), model.end());
    choose(kSets.front());
    const std::string first = done(words).out;
    EXPECT_NE(first.find("[workspace "), std::string::npos) << first;
    for (const char* set : kSets) {
      choose(set);
      EXPECT_EQ(done(words).out, first) << set << ", " << ::testing::PrintToString(model);
    }
  }
}

// And they run: what a library wants beyond its workspace is taken, and predicted.
TEST_F(InstructionSets, OlderOnesTrain) {
  const std::vector<std::vector<std::string>> models = {
      {"tiny.toml"}, {"resnet18", "--data.images=synthetic", "--model.width=16", "--train.batch=8"}};
  int runs = 0;
  for (const char* precision : {"--train.precision=f32", "--train.precision=bf16"})
    for (const std::vector<std::string>& model : models) {
      double newest = 0;
      for (const char* set : kSets) {
        choose(set);
        const std::string folder = "run" + std::to_string(runs++);
        std::vector<std::string> words = {"train"};
        words.insert(words.end(), model.begin(), model.end());
        words.insert(words.end(), {precision, "--train.steps=4", "--output.dir=" + folder});
        const Finished f = done(words);
        EXPECT_NE(f.out.find("predicted ✓"), std::string::npos) << set << "\n" << f.out;
        const double loss = metrics(folder).back()["loss"].get<double>();
        if (newest == 0) newest = loss;
        EXPECT_NEAR(loss, newest, 0.02 * newest) << set << ", " << precision;
      }
    }
}

}  // namespace
}  // namespace trireme::testing
