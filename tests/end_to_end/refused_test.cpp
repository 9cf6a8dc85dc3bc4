// What is asked for and cannot be is refused before anything long begins: by its key, with the nearest that can.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

class Refused : public Program {
 protected:
  std::string refused_training(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", "tiny.toml", "--output.dir=run"});
    std::string error = refused(words);
    EXPECT_FALSE(exists("run")) << error;
    return error;
  }
  // A command with settings ("key=value") whose refusals are followed, proposal by proposal.
  void expect_way(const std::vector<std::string>& command, std::vector<std::string> settings) const {
    std::set<std::vector<std::string>> tried;
    Finished f;
    std::string way = fmt::format("{} {}", fmt::join(command, " "), fmt::join(settings, " "));
    while (tried.insert(settings).second) {
      std::vector<std::string> words = command;
      for (const std::string& setting : settings) words.push_back("--" + setting);
      f = run(words);
      const std::size_t at = f.err.find("the nearest is ");
      if (f.code == 0 || at == std::string::npos) break;
      // "key = value", several by " and "; what follows ", or " is another way.
      std::string proposed = f.err.substr(at + 15, f.err.find('\n', at) - at - 15);
      proposed = proposed.substr(0, proposed.find(", or "));
      for (std::size_t begin = 0; begin < proposed.size();) {
        const std::size_t end = std::min(proposed.find(" and ", begin), proposed.size());
        std::string one = proposed.substr(begin, end - begin);
        begin = end + 5;
        const std::size_t equals = one.find(" = ");
        ASSERT_NE(equals, std::string::npos) << f.err;
        std::erase(one, '"');
        one = one.substr(0, equals) + "=" + one.substr(equals + 3);
        std::erase_if(settings, [&](const std::string& s) { return s.starts_with(one.substr(0, equals + 1)); });
        settings.push_back(one);
      }
      way += fmt::format("\n → {}", fmt::join(settings, " "));
    }
    EXPECT_EQ(f.code, 0) << way << "\n" << f.err;
    expect_none(f.out, "would not run here");
    EXPECT_LE(tried.size(), 4U) << way;
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
                 {"'ttp'", "the nearest is \"out:tp\" with parallel.mesh = \"", "tp=2\""});
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
               {"parallel.stages", "the nearest is parallel.stages = [2,1]"});
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
  Running two(folder(), {"export", "run", "theirs"}, 2);
  const Finished f = two.wait();
  EXPECT_NE(f.code, 0);
  expect_parts(f.err, {"trireme export is one process", "leave the launcher out"});
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
  expect_parts(f.err, {"memory.limit = \"100KiB\" is too small: the plan needs ", " peak ", "found"});
  EXPECT_LT(f.cpu_seconds, 8) << "of " << f.err;
}

// Sharded gradients wait whole in buckets, and as sums of micro-batches: there the smallest micro-batch alone is not
// the smallest step.
TEST_F(Refused, UnderZeroNoSettingThatIsTriedByHandNeedsLess) {
  const std::vector<std::string> step = {"quickstart", "--parallel.mesh=dp=2", "--parallel.zero=3", "--model.width=64",
                                         "--memory.limit=2MiB"};
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), step.begin(), step.end());
  words.insert(words.end(), {"--dry-run", "--output.dir=run"});
  const std::string said = done(words).out;
  expect_part(said,
              "settings of memory.offload, memory.offload_policy, memory.remat, parallel.bucket, train.micro_batch");
  const std::string found = "the smallest peak found is ";
  const std::size_t at = said.find(found);
  ASSERT_NE(at, std::string::npos) << said;
  std::string digits;
  for (std::size_t i = said.find('(', at); i < said.find(" B)", at); ++i)
    if (said[i] >= '0' && said[i] <= '9') digits += said[i];
  for (const char* rows : {"1", "2", "4"})
    for (const char* bucket : {"64KiB", "25MiB"}) {
      std::vector<std::string> by_hand = {"memory"};
      by_hand.insert(by_hand.end(), step.begin(), step.end());
      by_hand.insert(by_hand.end(), {"--memory.remat=full", std::string("--train.micro_batch=") + rows,
                                     std::string("--parallel.bucket=") + bucket, "--json", "--brief"});
      const nlohmann::json plan = nlohmann::json::parse(done(by_hand).out);
      EXPECT_LE(std::stoull(digits), plan["ranks"][0]["predicted_peak_bytes"].get<std::uint64_t>())
          << rows << " rows, buckets of " << bucket;
    }
}

// Of what fits into a limit the quickest is proposed, by the times that `memory` predicts.
TEST_F(Refused, WhatIsProposedForALimitIsTheQuickestThatFits) {
  const std::vector<std::string> step = {
      "memory", "tiny.toml", "--model.layers=4", "--model.width=32", "--train.batch=16", "--brief", "--json"};
  const auto planned = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = step;
    words.insert(words.end(), more.begin(), more.end());
    return nlohmann::json::parse(done(words).out);
  };
  const auto peak = [](const nlohmann::json& plan) {
    return plan["ranks"][0]["predicted_peak_bytes"].get<std::uint64_t>();
  };
  std::vector<nlohmann::json> by_hand;
  for (const char* rows : {"8", "4", "2", "1"})
    for (const char* remat : {"none", "selective", "full"})
      by_hand.push_back(planned({std::string("--train.micro_batch=") + rows, std::string("--memory.remat=") + remat}));
  for (const char* limit : {"--memory.limit=1200000", "--memory.limit=1400000", "--memory.limit=1600000"}) {
    const std::string short_of = planned({limit}).at("shortfalls").at(0);
    const std::size_t at = short_of.find(" with --");
    ASSERT_NE(at, std::string::npos) << short_of;
    std::vector<std::string> proposed = {limit};
    std::istringstream words(short_of.substr(at + 6));
    for (std::string word; words >> word;) proposed.push_back(word);
    const nlohmann::json plan = planned(proposed);
    EXPECT_TRUE(plan.at("shortfalls").empty()) << plan.at("shortfalls");
    for (const nlohmann::json& other : by_hand)
      if (peak(other) <= std::stoull(std::string(limit).substr(15))) {
        ASSERT_LE(plan["nominal_step_s"].get<double>(), 1.0001 * other["nominal_step_s"].get<double>()) << short_of;
      }
  }
}

// What a refusal proposes is followed, key by key, until the run is accepted: soon, and never in a circle.
TEST_F(Refused, WhatIsProposedLeadsToARun) {
  const std::vector<std::vector<std::string>> cases = {
      {"parallel.mesh=dp=2", "parallel.servers=2", "parallel.compress=int8"},
      {"parallel.mesh=dp=2", "parallel.server=sync", "parallel.compress=int8"},
      {"parallel.mesh=dp=2", "parallel.server=async", "parallel.servers=2", "parallel.compress=topk:0.1"},
      {"parallel.mesh=dp=2", "parallel.servers=3", "parallel.zero=1"},
      {"parallel.mesh=dp=2", "parallel.servers=2"},
      {"parallel.mesh=pp=40", "train.batch=8"},
      {"parallel.mesh=tp=2", "parallel.sequence=true", "model.context=15"},
      {"parallel.mesh=tp=4", "parallel.sequence=true", "model.context=18", "model.heads=4"},
      {"parallel.mesh=pp=2", "parallel.pipeline=interleaved:30", "train.micro_batch=1"},
      {"parallel.mesh=pp=3", "parallel.pipeline=interleaved:30", "train.micro_batch=1"},
      {"parallel.mesh=pp=2", "parallel.pipeline=pipedream-2bw", "train.batch=8", "train.micro_batch=8",
       "model.tie_embeddings=false"},
      {"parallel.mesh=pp=3", "parallel.pipeline=pipedream-2bw", "train.batch=2", "train.micro_batch=2",
       "model.tie_embeddings=false"},
      {"parallel.mesh=pp=3", "parallel.pipeline=file:two.txt", "train.batch=8"},
      {"parallel.mesh=pp=2", "parallel.pipeline=file:two.txt", "train.batch=8", "train.micro_batch=8"},
      {"parallel.mesh=pp=2", "parallel.pipeline=file:two.txt", "train.batch=3", "train.micro_batch=3"},
      {"parallel.mesh=pp=3", "parallel.pipeline=interleaved:2", "parallel.stages=[1,1,1]", "model.layers=3",
       "train.batch=12"},
      {"parallel.mesh=pp=3", "parallel.stages=[1,1,1]", "train.batch=12"},
      {"parallel.mesh=dp=2", "parallel.server=sync", "parallel.servers=100"},
      {"parallel.mesh=dp=2,tp=2", "parallel.server=sync", "parallel.servers=200"},
      {"memory.remat=every:9"},
  };
  write("two.txt", "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  for (const std::vector<std::string>& settings : cases) expect_way({"train", "tiny.toml", "--dry-run"}, settings);
  for (const char* layers : {"3", "24"})
    for (const char* remat : {"every:1", "full", "selective", "every:30"})
      expect_way(
          {"train", "tiny.toml", "--dry-run", "--model.family=mlp", "--data.images=synthetic", "--model.image=8"},
          {fmt::format("model.layers={}", layers), fmt::format("memory.remat={}", remat)});
}

// The same of models whose weights are stored as codes: they are used and not trained.
TEST_F(Refused, WhatIsProposedForCodesLeadsToARun) {
  const std::vector<std::string> train = {"train", "tiny.toml", "--dry-run"};
  expect_way(train, {"memory.weights=int8"});
  expect_way(train, {"model.width=32", "memory.weights=int4", "memory.linear_inputs=int8", "memory.kv_cache=int8"});
  expect_way(train, {"memory.kv_cache=int8"});
  expect_way(train, {"memory.linear_inputs=int8"});
  expect_way(train, {"memory.weight_bits=[\"blocks.0.*=8\"]"});
  done({"train", "tiny.toml", "--output.dir=run"});
  done({"compress", "run", "--out=small", "--weights=int8", "--activations=int8", "--kv-cache=int8", "--decode=0"});
  expect_way({"train", "small", "--dry-run"}, {});
  expect_way({"eval", "--from=small"}, {"parallel.mesh=tp=2"});
  for (const char* mesh : {"tp=2", "pp=2,tp=2"})
    expect_way({"generate", "--from=small", "--prompt=a", "--tokens=2"}, {fmt::format("parallel.mesh={}", mesh)});
  // Codes have lost what they were made of.
  expect_parts(refused({"train", "small", "--resume", "--train.steps=8"}),
               {"small has quantized weights (memory.weights = \"int8\")", "resume the run that it was made of"});
  done({"train", "run", "--resume", "--train.steps=8", "--train.quantize=int8"});
}

// A number of heads that ranks cannot share is refused in every precision: in 16 bits the model reads copies of its
// weights. Channels are padded.
TEST_F(Refused, HeadsAreNotPaddedAndChannelsAreInEveryPrecision) {
  for (const char* mesh : {"tp=4", "pp=2,tp=4"}) {
    std::vector<std::string> said;
    for (const char* precision : {"f32", "bf16", "fp16"}) {
      const std::string text =
          refused_training({"--model.width=24", "--model.heads=6", "--model.layers=2",
                            fmt::format("--parallel.mesh={}", mesh), fmt::format("--train.precision={}", precision)});
      said.push_back(text.substr(text.find("error: ")));
      for (const char* family : {"convnet", "resnet"})
        done({"train", "tiny.toml", fmt::format("--model.family={}", family), "--data.images=synthetic",
              "--model.image=16", "--model.width=6", fmt::format("--model.layers={}", family[0] == 'r' ? 18 : 2),
              fmt::format("--parallel.mesh={}", mesh), fmt::format("--train.precision={}", precision), "--dry-run"});
    }
    expect_parts(said[0], {"4 ranks cannot have as many each of model.heads = 6; the nearest is \"", "tp=3\""});
    EXPECT_EQ(said[1], said[0]);
    EXPECT_EQ(said[2], said[0]);
  }
}

TEST_F(Refused, SchedulesAreRefusedByTheirKey) {
  const auto of = [&](const std::string& pipeline) {
    const Finished f =
        run({"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2", "--train.batch=8", "--train.micro_batch=8",
             "--parallel.pipeline=" + pipeline, "--model.tie_embeddings=false"});
    EXPECT_EQ(f.code, 2) << f.err;
    return f.err;
  };
  write("order.txt", "F0 B0 U\nF0 U B0\n");
  write("one.txt", "F0 B0 U\n");
  write("four.txt", "F0 F1 F2 F3 B0 B1 B2 B3 U\nF0 B0 F1 B1 F2 B2 F3 B3 U\n");
  expect_parts(of("file:nowhere.txt"), {"error: parallel.pipeline = \"file:nowhere.txt\": cannot be read"});
  expect_parts(of("file:order.txt"),
               {"error: parallel.pipeline = \"file:order.txt\": stage 1 (line 2): U comes before"});
  expect_parts(of("file:one.txt"), {"\"file:one.txt\" has 1 stage, and parallel.mesh = \"pp=2\" has 2"});
  expect_parts(of("file:four.txt"), {"has 4 micro-batches, and this run has 1; the nearest is train.micro_batch = 2"});
  expect_parts(of("pipedream-2bw"),
               {"error: parallel.pipeline = \"pipedream-2bw\" needs at least as many micro-batches "
                "as stages, and has 1 of 2; the nearest is train.micro_batch = 4"});
}

// Who has written what is wrong: the file by itself, or the words of the command line over it.
TEST_F(Refused, TheCommandLineIsBlamedForItsOwn) {
  expect_parts(refused_training({"--train.batch=8", "--parallel.mesh=dp=3"}), {"error: command line: train.batch = 8"});
  write("wrong.toml", "[train]\nbatch = 8\n[parallel]\nmesh = \"dp=3\"\n");
  expect_parts(refused({"train", "wrong.toml"}), {"error: wrong.toml: train.batch = 8"});
  expect_parts(refused({"train", "wrong.toml", "--train.lr=1e-3"}), {"error: wrong.toml: train.batch = 8"});
  done({"train", "tiny.toml", "--output.dir=run"});
  expect_parts(refused({"train", "run", "--resume", "--train.batch=7", "--train.micro_batch=2"}),
               {"error: command line: train.micro_batch = 2"});
  // A plan's keys are the plan's.
  done({"memory", "tiny.toml", "--brief", "--parallel.mesh=dp=2", "--plan-out=plan.toml"});
  const std::string error = refused({"train", "tiny.toml", "--plan=plan.toml", "--train.batch=7"});
  expect_parts(error, {"error: under the plan plan.toml: train.batch = 7"});
}

TEST_F(Refused, AReplayIsOfSomeSteps) {
  for (const char* steps : {"-1", "-7", "many"})
    expect_parts(refused({"train", "tiny.toml", "--dry-run", "--replay", steps}), {"--replay", "at least 0"});
}

// Generation has one sequence: the ranks that it can use are named at once.
TEST_F(Refused, RanksOfGenerationAreProposedOnce) {
  done({"train", "tiny.toml", "--output.dir=run"});
  for (const char* mesh : {"h=2", "dp=2", "w=2", "h=2,dp=2"}) {
    const std::string error =
        refused({"generate", "--from=run", "--prompt=a", "--tokens=2", fmt::format("--parallel.mesh={}", mesh)});
    const std::size_t at = error.find("the nearest is \"");
    ASSERT_NE(at, std::string::npos) << error;
    const std::string nearest = error.substr(at + 16, error.find('"', at + 16) - at - 16);
    done({"generate", "--from=run", "--prompt=a", "--tokens=2", "--parallel.mesh=" + nearest});
  }
}

// Weights are stored as they are; another way to store them is a command's work.
TEST_F(Refused, WeightsStoredInAnotherWay) {
  done({"train", "tiny.toml", "--output.dir=run"});
  for (const char* command : {"generate", "eval"}) {
    std::vector<std::string> words = {command, "--from=run", "--memory.weights=int8"};
    if (words[0] == "generate") words.insert(words.end(), {"--prompt=a", "--tokens=2"});
    expect_parts(refused(words), {"memory.weights = \"int8\"", "`trireme compress run --out DIR --weights int8`"});
  }
  done({"compress", "run", "--out=small", "--weights=int8", "--decode=0"});
  done({"generate", "--from=small", "--prompt=a", "--tokens=2", "--memory.weights=int8"});
}

TEST_F(Refused, GgufFilesHaveTypesOfTheirOwnAndReplaceNoOthers) {
  done({"train", "tiny.toml", "--output.dir=run"});
  expect_parts(refused({"export", "run", "mine.gguf", "--dtype=bf16"}), {"--dtype bf16", "the nearest is --type bf16"});
  EXPECT_FALSE(exists("mine.gguf"));
  write("thesis.gguf", "mine");
  expect_parts(refused({"export", "run", "thesis.gguf", "--overwrite"}), {"thesis.gguf", "is no GGUF file"});
  EXPECT_EQ(read("thesis.gguf"), "mine");
  done({"export", "run", "mine.gguf"});
  done({"export", "run", "mine.gguf", "--overwrite"});
}

// Going on needs something to go on with.
TEST_F(Refused, NothingToResume) {
  expect_parts(refused({"train", "--resume"}), {"--resume: there is no run in runs"});
  done({"train", "tiny.toml", "--output.dir=run"});
  expect_parts(refused({"train", "run", "--resume", "--output.dir=zz"}), {"output.dir = \"zz\" holds no run"});
  EXPECT_FALSE(exists("zz"));
  EXPECT_FALSE(exists("runs"));
}

TEST_F(Refused, PlansAreOfTraining) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string error = refused({"eval", "--from=run", "--plan=run/plan.toml"});
  expect_parts(error, {"unknown option --plan", "`trireme eval` follows none", "--parallel.mesh"});
  EXPECT_EQ(error.find("--parallel.plan"), std::string::npos) << error;
}

// A plan for GPUs, where there are none and the build has no CUDA: the command that shows its memory is named, and
// does.
TEST_F(Refused, MemoryOfAPlanForGpusIsShownBySimulating) {
  done({"memory", "tiny.toml", "--brief", "--plan-out=cpu.toml"});
  std::string plan = read("cpu.toml");
  for (std::size_t at = 0; (at = plan.find("\"cpu\"")) != std::string::npos;) plan.replace(at, 5, "\"cuda\"");
  write("gpu.toml", plan);
  const Finished f = run({"memory", "tiny.toml", "--brief", "--plan=gpu.toml"});
  if (f.code != 0) expect_parts(f.err, {"`trireme simulate CONFIG --cluster NAME [--plan FILE]` shows the memory"});
  expect_parts(done({"simulate", "tiny.toml", "--cluster=h100", "--plan=gpu.toml"}).out, {"memory"});
}

// A command that there is not has no help either: that of all commands would look like an answer.
TEST_F(Refused, UnknownCommandsHaveNoHelp) {
  expect_parts(refused({"prune", "--help"}), {"unknown command 'prune'", "did you mean 'compress --prune'?"});
  for (const char* word : {"quantize", "distil", "sample", "chat", "fine-tune", "resume", "convert", "test"}) {
    const std::string error = refused({word});
    const std::size_t at = error.find("did you mean '");
    ASSERT_NE(at, std::string::npos) << error;
    done({error.substr(at + 14, error.find_first_of(" '", at + 14) - at - 14), "--help"});
  }
  expect_parts(refused({"trian", "--help"}), {"unknown command 'trian'", "did you mean 'train'?"});
  for (const std::vector<std::string>& known : std::vector<std::vector<std::string>>{
           {"--help"}, {"train", "--help"}, {"inspect", "--help"}, {"inspect", "program", "--help"}, {"--version"}})
    done(known);
}

// What a shell's variable that was never set leaves behind is not taken for nothing at all.
TEST_F(Refused, SillyValuesAreRefusedAtOnce) {
  for (const char* command : {"train", "inspect"}) {
    std::vector<std::string> words = {command};
    if (words[0] == "inspect") words.emplace_back("graph");
    words.emplace_back("");
    expect_parts(refused(words), {"config: is empty"});
  }
  expect_parts(refused_training({"--parallel.mesh=dp=99999999999"}), {"parallel.mesh must be"});
  expect_parts(refused_training({"--parallel.mesh=dp=5000000000,tp=5000000000"}), {"parallel.mesh must be"});
  done({"train", "tiny.toml", "--output.dir=run"});
  expect_parts(refused({"eval", "", "--from=run"}), {"config: is empty"});
  const std::vector<std::string> generate = {"generate", "--from=run", "--prompt=a", "--tokens=2"};
  for (const char* seed : {"-1", "99999999999999999999", "1.5", "x"}) {
    std::vector<std::string> words = generate;
    words.push_back(fmt::format("--seed={}", seed));
    expect_parts(refused(words), {"--seed", "must be a whole number", "see trireme generate --help"});
  }
  // A calibration takes many seconds, and the place of no other file.
  write("thesis.txt", "mine");
  expect_parts(refused({"calibrate", "--out=thesis.txt"}), {"--out thesis.txt", "is no calibration by trireme"});
  expect_parts(refused({"calibrate", "--out=text.txt/here.toml"}), {"--out text.txt/here.toml cannot be written"});
  EXPECT_EQ(read("thesis.txt"), "mine");
}

// The command that is proposed is one that starts.
TEST_F(Refused, ProcessesThatWereNotStartedAreCounted) {
  const std::vector<std::string> words = {"--runtime.transport=mpi", "--parallel.mesh=dp=2"};
  expect_parts(refused_training(words),
               {"was not started by mpirun or srun; try: mpirun -n 2 ",
                "train tiny.toml --output.dir=run --runtime.transport=mpi --parallel.mesh=dp=2"});
  expect_part(refused_training({"--runtime.transport=mpi"}), "try: mpirun -n RANKS ");
  // A plan needs none of them.
  const std::string dry =
      done({"train", "tiny.toml", "--dry-run", "--runtime.transport=mpi", "--parallel.mesh=dp=2"}).out;
  expect_parts(dry, {"plan    dp=2 → 2 ranks (mpi)", "launch  mpirun -n 2 ", "dry run: compiled, checked and planned"});
  expect_none(dry, "would not run here");
}

TEST_F(Refused, StagesOfOneRankAreLeftOut) {
  expect_part(
      refused({"train", "two-layer", "--parallel.stages=[2,2]"}),
      "parallel.stages lists 2 stages, and parallel.mesh = \"auto\" has no pp; the nearest is parallel.stages = "
      "[], or pp=2 in parallel.mesh");
  expect_way({"train", "two-layer", "--dry-run"}, {"parallel.stages=[2,2]"});
  expect_part(run({"train", "two-layer", "--dry-run", "--parallel.stages=[4]"}).err,
              "parallel.stages = [4] has no effect: it is for several pipeline stages");
}

// As by a shell's variable that was never set.
TEST_F(Refused, EmptyAndZeroAreNotTakenForDefaults) {
  for (const char* limit : {"0", "0B", "0GiB"})
    expect_part(refused({"train", "tiny.toml", std::string("--memory.limit=") + limit}),
                "memory.limit must be a size above 0 such as \"8GiB\", or \"\" for no limit, got ");
  expect_part(refused({"train", "tiny.toml", "--parallel.mesh="}), "parallel.mesh must be \"auto\" or axes such as ");
  for (const char* command : {"plan", "simulate", "fit"}) {
    expect_part(refused({command, "tiny.toml", "--cluster="}), "--cluster= is empty; name one, or leave it out");
    expect_part(refused({command, "tiny.toml", "--cluster", ""}), "--cluster: is empty; name one, or leave it out");
  }
}

// Before anything is compiled, and as a wrong request.
TEST_F(Refused, APlanThatCannotBeWrittenIsFoundFirst) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"memory", "tiny.toml", "--plan-out=text.txt/plan.toml", "--model.layers=3000"},
           {"plan", "tiny.toml", "--cluster=h100", "--out=text.txt/plan.toml", "--model.layers=3000"}}) {
    Running running(folder(), command);
    const Finished f = running.wait();
    EXPECT_EQ(f.code, 2) << f.err;
    expect_part(f.err, "text.txt/plan.toml cannot be written: ");
    EXPECT_LT(f.cpu_seconds, 1) << "it was compiled first";
  }
  done({"memory", "tiny.toml", "--brief", "--plan-out=new/folder/plan.toml"});
  EXPECT_TRUE(exists("new/folder/plan.toml"));
}

TEST_F(Refused, TheNearestIsNotWhatWasAsked) {
  expect_parts(refused_training({"--parallel.mesh=pp=2", "--parallel.stages=[2]", "--model.layers=4"}),
               {"parallel.stages lists 1 stage, ", "the nearest is parallel.stages = [2,2]"});
  expect_none(refused_training({"--parallel.mesh=dp=2,tp=2", "--parallel.sharding.loss=1:tp,batch:dp"}),
              "the nearest is \"loss\"");
}

// Where even root makes no files.
TEST_F(Refused, FoldersThatTakeNoFilesAreFoundFirst) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"memory", "tiny.toml", "--plan-out=/proc/nope/x"},
                                             {"plan", "tiny.toml", "--cluster=h100", "--out=/proc/nope/x"},
                                             {"calibrate", "--out=/proc/nope/x"},
                                             {"train", "tiny.toml", "--output.dir=/proc/nope/x"}})
    expect_parts(refused(command), {"/proc/nope/x", " cannot be written: /proc takes no files"});
  expect_parts(refused({"simulate", "tiny.toml", "--cluster=h100", "--trace=/proc/nope/x"}),
               {"--trace /proc/nope/x: cannot write"});
  expect_parts(refused({"inspect", "schedule", "--stages=2", "--micro-batches=4", "--svg=/proc/nope/x"}),
               {"--svg /proc/nope/x: cannot write"});
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
