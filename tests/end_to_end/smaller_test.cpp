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
  expect({"--prune.method=magnitude", "--prune.schedule=iterative", "--prune.begin=1", "--prune.every=100"},
         "the nearest is prune.");
  expect({"--prune.method=magnitude", "--prune.pattern=channels"}, "channels");
  expect({"--prune.method=magnitude", "--prune.pattern=blocks"}, "trireme compress");
  expect({"--prune.method=magnitud"}, "magnitude");
  expect({"--distil.alpha=0.9"}, "distil.teacher");
  expect({"--distil.teacher=nowhere"}, "distil.teacher = \"nowhere\"");
}

TEST_F(Smaller, CompressTeachesAStudentAndGoesOn) {
  done({"train", "tiny.toml", "--output.dir=teacher", "--model.layers=2"});
  const std::vector<std::string> distil = {
      "compress", "teacher",   "--distil", "--model.layers=1", "--train.steps=12", "--out", "student", "--decode",
      "4",        "--batches", "1"};
  const Finished made = done(distil);
  EXPECT_NE(made.out.find("before "), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("after "), std::string::npos);
  EXPECT_EQ(metrics("student").back()["step"], 12);
  EXPECT_NE(read("student/config.toml").find("teacher = \""), std::string::npos);
  // It is a run as any other.
  done({"generate", "--from", "student", "--prompt", "a", "--tokens", "2"});
  // What was not given follows from the student's own shape.
  done({"compress", "teacher", "--distil", "--model.heads=1", "--model.width=8", "--train.steps=2", "--out", "narrow"});
  const std::string same = refused({"compress", "teacher", "--distil", "--out", "none"});
  EXPECT_NE(same.find("--model.layers=1"), std::string::npos) << same;
  EXPECT_FALSE(exists("none"));
  refused({"compress", "teacher", "--distil", "--model.layers=1", "--out", "teacher"});
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
  done(with(student, {"--output.dir=tp", "--parallel.mesh=tp=2"}));
  done(with(student, {"--output.dir=cut3", "--parallel.mesh=dp=2", "--parallel.zero=3"}));
  for (const char* run : {"tp", "cut3"})
    EXPECT_NEAR(metrics(run).back()["loss"].get<double>(), metrics("whole").back()["loss"].get<double>(), 1e-5) << run;
  const std::string said =
      refused({"train", "tiny.toml", "--output.dir=other", "--distil.teacher=teacher", "--model.vocab=300"});
  EXPECT_NE(said.find("distil.teacher"), std::string::npos) << said;
  EXPECT_NE(said.find("model.vocab = 300"), std::string::npos) << said;
  done({"compress", "teacher", "--out", "codes", "--weights", "int8", "--decode", "0"});
  const std::string quantized = refused({"train", "tiny.toml", "--output.dir=other", "--distil.teacher=codes"});
  EXPECT_NE(quantized.find("quantized weights"), std::string::npos) << quantized;
}

std::uintmax_t checkpoint_bytes(const std::filesystem::path& run) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "checkpoints"))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  return bytes;
}

// Keys, generation, evaluation, training and export follow the smaller shape.
TEST_F(Smaller, SlicesLeaveATrainedModel) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.family=llama", "--model.heads=4"});
  const Finished f = done({"compress", "run", "--out", "small", "--prune", "neurons:0.5,heads:0.5", "--decode", "4"});
  EXPECT_NE(f.out.find("model.heads 4 → 2"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("smaller"), std::string::npos) << f.out;
  EXPECT_NE(read("small/config.toml").find("heads = 2"), std::string::npos);
  done({"generate", "--from", "small", "--prompt", "a", "--tokens", "4"});
  done({"eval", "--from", "small"});
  done({"export", "small", "hf"});
  done({"eval", "--from", "hf", "--data.text=text.txt", "--data.tokenizer=bytes"});
  done({"train", "small", "--resume", "--train.steps=3"});
  // A GPT-2 without some of its heads has no shape in transformers.
  done({"train", "tiny.toml", "--output.dir=gpt2"});
  done({"compress", "gpt2", "--out", "heads", "--prune", "heads:0.5", "--decode", "0"});
  done({"generate", "--from", "heads", "--prompt", "a", "--tokens", "4"});
  EXPECT_NE(refused({"export", "heads", "hf2"}).find("model.heads"), std::string::npos);
  EXPECT_NE(refused({"compress", "gpt2", "--out", "x", "--prune", "channels:0.5"}).find("channels"), std::string::npos);
  EXPECT_NE(refused({"compress", "gpt2", "--out", "x", "--prune", "neurons:1.5"}).find("--prune"), std::string::npos);
}

// A checkpoint of zeros is small, and what is read from it is what was.
TEST_F(Smaller, ZerosAreNotStored) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.width=64", "--model.vocab=256"});
  done({"compress", "run", "--out", "dense", "--prune", "unstructured:0.01", "--decode", "0"});
  done({"compress", "run", "--out", "sparse", "--prune", "unstructured:0.9", "--decode", "0"});
  done({"compress", "run", "--out", "pattern", "--prune", "2:4", "--decode", "0"});
  const auto dense = checkpoint_bytes(folder() / "dense");
  EXPECT_LT(checkpoint_bytes(folder() / "sparse"), dense * 7 / 10);  // embeddings are not pruned
  EXPECT_LT(checkpoint_bytes(folder() / "pattern"), dense * 9 / 10);
  const auto loss = [&](const std::string& run) {
    return nlohmann::json::parse(done({"eval", "--from", run, "--json"}).out)["loss"].get<double>();
  };
  const double before = loss("sparse");
  done({"compress", "sparse", "--out", "again", "--prune", "unstructured:0.5", "--decode", "0"});  // no more zeros
  EXPECT_EQ(loss("again"), before);
  EXPECT_EQ(checkpoint_bytes(folder() / "again"), checkpoint_bytes(folder() / "sparse"));
  const std::string table = done({"compress", "run", "--sensitivity", "--batches", "1"}).out;
  EXPECT_NE(table.find("blocks.0.mlp.up.weight"), std::string::npos) << table;
}

}  // namespace
}  // namespace trireme::testing
