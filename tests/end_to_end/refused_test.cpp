// What is asked for and cannot be is refused before anything long begins: by its key, with the nearest that can.
#include <gtest/gtest.h>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

class Refused : public Program {
 protected:
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in:\n" << text;
  }
  std::string refused_training(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", "tiny.toml", "--output.dir=run"});
    std::string error = refused(words);
    EXPECT_FALSE(exists("run")) << error;
    return error;
  }
  // Of images, keys of tiny.toml that are for text are warned of before.
  std::string refused_images(const std::string& family, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        "train",           "tiny.toml",       "--model.family=" + family, "--data.images=synthetic", "--model.image=16",
        "--model.width=8", "--output.dir=run"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = run(words);
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_FALSE(exists("run")) << f.err;
    return f.err;
  }
};

TEST_F(Refused, HeadsThatRanksCannotShareNameTheMesh) {
  expect_parts(refused_training({"--model.heads=4", "--model.width=24", "--parallel.mesh=tp=3"}),
               {"parallel.mesh = \"tp=3\"", "model.heads = 4", "the nearest is \"tp=2\", or model.heads = 3"});
  expect_parts(refused_training({"--model.heads=4", "--model.width=24", "--parallel.mesh=dp=2,tp=8"}),
               {"parallel.mesh = \"dp=2,tp=8\"", "the nearest is \"dp=2,tp=4\", or model.heads = 8"});
}

TEST_F(Refused, ShardingsAreReadWhateverTheMesh) {
  for (const char* mesh : {"--parallel.mesh=dp=1", "--parallel.mesh=dp=2"}) {
    expect_parts(refused_training({mesh, "--parallel.sharding.*.up.weight=nonsense"}),
                 {"parallel.sharding", "\"*.up.weight\" = \"nonsense\"", "the nearest is"});
    expect_parts(refused_training({mesh, "--parallel.sharding.*.up.weight=uot:tp"}),
                 {"'uot'", "the nearest is \"out\""});
    expect_parts(refused_training({mesh, "--parallel.sharding.*.up.weight=out:ttp"}),
                 {"'ttp'", "the nearest is \"tp\""});
  }
  // One that can be read, for an axis that the mesh does not have.
  expect_parts(
      done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2", "--parallel.sharding.*.up.weight=out:tp"}).err,
      {"warning: parallel.sharding", "has no effect: it is for axes that parallel.mesh does not have"});
}

TEST_F(Refused, NothingLeavesWhereThereIsOneOfIt) {
  const auto pruned = [](const std::string& pattern) {
    return std::vector<std::string>{"--prune.method=magnitude", "--prune.pattern=" + pattern, "--prune.begin=2",
                                    "--prune.end=4"};
  };
  std::vector<std::string> words = pruned("heads");
  words.insert(words.end(), {"--model.family=llama", "--model.kv_heads=1"});
  expect_parts(refused_training(words),
               {"prune.pattern = \"heads\"", "model.kv_heads = 1", "the nearest is \"neurons\""});
  // The nearest is one that the model has.
  expect_parts(refused_images("mlp", pruned("heads")), {"has no heads; the nearest is \"neurons\""});
  expect_parts(refused_images("convnet", pruned("heads")), {"has no heads; the nearest is \"channels\""});
  expect_parts(refused_images("convnet", pruned("neurons")), {"has no neurons; the nearest is \"channels\""});
}

TEST_F(Refused, EveryRefusalOfAPairHasItsNearest) {
  const std::vector<std::vector<std::string>> cases = {
      {"--parallel.mesh=dp=2", "--parallel.compress=topk:0.1"},
      {"--parallel.mesh=dp=2", "--parallel.compress=int8", "--parallel.compress_warmup=2"},
      {"--parallel.mesh=dp=2", "--parallel.compress=powersgd:2", "--parallel.server=sync"},
      {"--parallel.compress_warmup=2"},
      {"--parallel.mesh=pp=2", "--parallel.stages=[1,1,1]", "--model.layers=3"},
      {"--parallel.mesh=pp=2", "--parallel.stages=[2,2]", "--model.layers=3"},
      {"--parallel.mesh=dp=2", "--parallel.zero=1", "--parallel.server=sync"},
      {"--model.layers=1", "--memory.remat=every:9"},
      {"--train.precision=bf16", "--memory.activations=bf16"},
      {"--train.min_lr=1"},
  };
  for (const std::vector<std::string>& words : cases) expect_parts(refused_training(words), {"the nearest is "});
  expect_parts(refused_training({"--parallel.mesh=pp=2", "--parallel.stages=[2,2]", "--model.layers=3"}),
               {"parallel.stages", "the nearest is [2,1]"});
}

// A folder that cannot be made is found before the data are read: here they are not there either.
TEST_F(Refused, AFolderThatCannotBeWrittenIsFoundFirst) {
  expect_parts(refused({"train", "tiny.toml", "--output.dir=text.txt/run", "--data.text=nowhere.txt"}),
               {"output.dir = \"text.txt/run\" cannot be written", "text.txt: Not a directory"});
  done({"train", "tiny.toml", "--output.dir=run"});
  expect_parts(refused({"compress", "run", "--out=text.txt/small", "--weights=int8"}),
               {"--out text.txt/small cannot be written"});
  expect_parts(refused({"export", "run", "text.txt/theirs"}), {"text.txt/theirs cannot be written"});
  expect_parts(refused({"export", "run", "text.txt/mine.gguf"}), {"text.txt/mine.gguf cannot be written"});
}

// A plan takes the place of another one, and of nothing else.
TEST_F(Refused, APlanIsNotWrittenOverSomethingElse) {
  write("thesis.txt", "mine");
  expect_parts(refused({"plan", "tiny.toml", "--cluster", "h100", "--ranks", "2", "--out", "thesis.txt"}),
               {"--out thesis.txt", "is no plan"});
  EXPECT_EQ(read("thesis.txt"), "mine");
  expect_parts(refused({"plan", "tiny.toml", "--cluster", "h100", "--ranks", "2", "--out", "text.txt/plan.toml"}),
               {"--out text.txt/plan.toml cannot be written"});
}

TEST_F(Refused, CommandsOfOneProcessUnderALauncher) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
  done({"train", "tiny.toml", "--output.dir=run"});
  Running two(folder(), {"generate", "--from", "run", "--prompt", "a", "--tokens", "2"}, 2);
  const Finished f = two.wait();
  EXPECT_NE(f.code, 0);
  expect_parts(f.err, {"trireme generate is one process", "leave the launcher out"});
}

// What no choice gets below is known before any is tried.
TEST_F(Refused, AHopelessLimitIsRefusedAtOnce) {
  const std::vector<std::string> large = {"--model.layers=24",    "--model.width=512",      "--model.heads=8",
                                          "--model.context=64",   "--memory.remat=optimal", "--memory.offload=all",
                                          "--memory.limit=100KiB"};
  std::vector<std::string> words = {"train", "tiny.toml", "--output.dir=run"};
  words.insert(words.end(), large.begin(), large.end());
  const Finished f = run(words);
  EXPECT_EQ(f.code, 2) << f.err;
  expect_parts(f.err, {"memory.limit = 100.0 KiB is too small: the plan needs ", " peak ", "found"});
  EXPECT_LT(f.cpu_seconds, 8) << "of " << f.err;
}

TEST_F(Refused, WordsOfOneCommandAreNotTakenForAnothers) {
  expect_parts(refused({"inspect", "schedule", "--schedule=gpipe", "--stages=2", "--micro-batches=4"}), {"--pipeline"});
  expect_parts(refused({"train", "tiny.toml", "--schedule", "gpipe"}), {"did you mean --parallel.pipeline?"});
  expect_parts(refused({"train", "tiny.toml", "--schedule", "cosine"}), {"did you mean --train.schedule?"});
  expect_parts(refused({"export", "--from", "run", "theirs"}), {"without a name: trireme export run folder"});
  expect_parts(refused({"inspect", "schedule", "--stages=0", "--micro-batches=4"}), {"--stages", "1"});
  done({"train", "tiny.toml", "--output.dir=runs/latest-of-mine"});
  expect_parts(refused({"generate", "--from=runs/latest-of-mien", "--prompt=a"}),
               {"did you mean runs/latest-of-mine?"});
}

}  // namespace
}  // namespace trireme::testing
