// What a person asks for is done, or the program says by name what is not.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "end_to_end/program.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/train/config.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = source_dir() + "/tests/huggingface/";

class Said : public Program {};

TEST_F(Said, KeysWithoutEffectAreWarnedOf) {
  const struct {
    std::vector<std::string> keys;
    std::string warning;
  } cases[] = {
      {{"--train.momentum=0.8"}, "warning: train.momentum = 0.8 has no effect: it is for train.optimizer = \"sgd\""},
      {{"--train.optimizer=sgd", "--train.betas=0.8,0.9"}, "warning: train.betas = [0.8, 0.9] has no effect"},
      {{"--model.rope_theta=500"}, "warning: model.rope_theta = 500.0 has no effect"},
      {{"--model.family=llama", "--model.dropout=0.1"}, "warning: model.dropout = 0.1 has no effect"},
      {{"--model.family=llama", "--model.rope_factor=2"}, "warning: model.rope_factor = 2.0 has no effect"},
      {{"--model.family=llama", "--model.rope_scaling=linear", "--model.rope_low=2"}, "warning: model.rope_low = 2.0"},
      {{"--data.eval=text.txt", "--data.holdout=0.1"}, "warning: data.holdout = 0.1 has no effect"},
      {{"--data.augment=flip"}, "warning: data.augment = \"flip\" has no effect: it is for images"},
      {{"--memory.offload_tier=disk"}, "warning: memory.offload_tier = \"disk\" has no effect"},
      {{"--memory.offload_tier=host"}, "warning: memory.offload_tier = \"host\" has no effect"},
      {{"--memory.offload=optimizer", "--memory.offload_policy=all"},
       "warning: memory.offload_policy = \"all\" has no"},
      {{"--parallel.zero=1"}, "warning: parallel.zero = 1 has no effect: it is for several ranks"},
      {{"--parallel.zero=1", "--parallel.mesh=tp=2"},
       "warning: parallel.zero = 1 has no effect: it is for several rep"},
      {{"--parallel.stage_dtype=bf16"},
       "warning: parallel.stage_dtype = \"bf16\" has no effect: it is for several pip"},
      {{"--parallel.stage_dtype=int8", "--parallel.mesh=dp=2"},
       "warning: parallel.stage_dtype = \"int8\" has no effect"},
      {{"--parallel.bucket=1MiB", "--parallel.mesh=pp=2"}, "warning: parallel.bucket = \"1MiB\" has no effect"},
      {{"--memory.offload=all"}, "warning: memory.offload = \"all\" offloads nothing: no tensor of this run is large"},
      {{"--parallel.timeout=9s"}, "warning: parallel.timeout = \"9s\" has no effect"},
      {{"--train.schedule=constant", "--train.min_lr=1e-4"}, "warning: train.min_lr = 0.0001 has no effect"},
  };
  for (const auto& [keys, warning] : cases) {
    std::vector<std::string> words = {"train", "tiny.toml", "--dry-run"};
    words.insert(words.end(), keys.begin(), keys.end());
    expect_part(done(words).err, warning);
  }
  expect_none(done({"train", "tiny.toml", "--dry-run"}).err, "warning");
  // What a run has written down for itself is no wish of anyone's.
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  expect_none(done({"train", "run", "--resume", "--train.steps=3"}).err, "warning");
}

// What a built-in configuration says about the learning rate is no wish of the person who named another schedule.
TEST_F(Said, BuiltInSettingsAreNotWarnedOf) {
  const std::vector<std::string> words = {"train", "--dry-run", "--data.text=text.txt", "--train.schedule=constant"};
  expect_none(done(words).err, "warning");
  std::vector<std::string> wished = words;
  wished.emplace_back("--train.min_lr=1e-4");
  expect_part(done(wished).err, "warning: train.min_lr = 0.0001 has no effect");
}

// A refusal of a mesh keeps what is right about it.
TEST_F(Said, RefusedMeshesComeWithTheNearest) {
  const auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "tiny.toml", "--dry-run", "--train.batch=24"});
    return refused(words);
  };
  expect_part(refusal({"--parallel.mesh=h=2,tp=2,pp=3"}), "the nearest is \"dp=2,tp=2,pp=3\"");
  expect_part(refusal({"--parallel.mesh=w=2,dp=3"}), "the nearest is \"dp=6\"");
  expect_part(refusal({"--parallel.mesh=pp=2,tp=2", "--parallel.compress=int8"}),
              "has one replica; the nearest is \"dp=2,pp=2,tp=2\"");
  expect_part(refusal({"--parallel.mesh=pp=2", "--memory.activations=sharded"}), "has no tp; the nearest is \"full\"");
  expect_part(refusal({"--parallel.mesh=pp=2", "--parallel.pipeline=interleaved:2", "--parallel.stages=[1,1]",
                       "--model.layers=2"}),
              "2 of 2 chunks each: 4 numbers are needed");
  const std::vector<std::string> images = {"--model.family=convnet", "--model.layers=3", "--model.image=16",
                                           "--data.images=synthetic", "--data.text=[]"};
  std::vector<std::string> words = {"train", "tiny.toml", "--dry-run", "--parallel.mesh=tp=2",
                                    "--parallel.sequence=true"};
  words.insert(words.end(), images.begin(), images.end());
  expect_part(done(words).err, "warning: parallel.sequence = true has no effect: it is for models of text");
  // A limit that one stage alone does not fit says what would.
  std::vector<std::string> limited = {"train", "tiny.toml", "--parallel.mesh=pp=2", "--memory.limit=64KiB"};
  expect_part(refused(limited), " with --");
}

TEST_F(Said, OptionsThatContradictOrSayNothingAreRefused) {
  expect_part(refused({"inspect", "program", "tiny.toml", "--dot"}), "--dot");
  expect_part(refused({"inspect", "program", "tiny.toml", "--graph=micro"}), "--graph micro");
  expect_part(refused({"inspect", "graph", "tiny.toml", "--program=step"}), "--program step");
  expect_part(refused({"inspect"}), "trireme inspect graph");
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1"});
  const std::string both = refused({"generate", "--from=run", "--prompt=a", "--prompt-tokens=1,2"});
  expect_part(both, "--prompt and --prompt-tokens");
}

TEST_F(Said, ProgramsOfEveryRank) {
  const std::vector<std::string> two = {"inspect", "program", "tiny.toml", "--parallel.mesh=dp=2"};
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), two.begin(), two.end());
    return more;
  };
  EXPECT_EQ(done(of({"--rank=1"})).out, done(of({"--rank=0"})).out);
  expect_part(refused(of({"--rank=2"})), "2 ranks, from 0 to 1");
  expect_part(refused(of({"--rank=-1"})), "--rank -1");
  const std::string server = done(of({"--rank=2", "--parallel.server=sync"})).out;
  EXPECT_FALSE(server.empty());
  EXPECT_NE(server, done(of({"--rank=1", "--parallel.server=sync"})).out);
}

TEST_F(Said, MemoryCountsServers) {
  const auto memory = nlohmann::json::parse(done({"memory", "tiny.toml", "--brief", "--json", "--parallel.mesh=dp=2",
                                                  "--parallel.server=sync", "--parallel.servers=3"})
                                                .out);
  ASSERT_EQ(memory["ranks"].size(), 5U);
  for (std::size_t r = 0; r < 5; ++r) {
    const auto& rank = memory["ranks"][r];
    EXPECT_EQ(rank["rank"], r);
    EXPECT_EQ(rank["role"], r < 2 ? "worker" : "server");
    std::int64_t sum = 0;
    for (const char* category : {"weights", "gradients", "optimizer", "activations", "workspace", "staging", "padding"})
      sum += rank.value(category, std::int64_t{0});
    EXPECT_LE(sum, rank["predicted_peak_bytes"].get<std::int64_t>());
    EXPECT_GT(rank["predicted_peak_bytes"], 0);
  }
}

// What a family or a tokenizer decides is said next to the 0 that leaves it to them.
TEST_F(Said, ConfigShowsWhatIsDecided) {
  const std::string config = done({"config", "tiny.toml"}).out;
  expect_parts(config, {"\nffn = 0  # 64 here\n", "\nvocab = 0  # 256 here\n", "\nwidth = 16\n"});
  write("shown.toml", config);
  EXPECT_EQ(done({"config", "shown.toml"}).out, config);
  expect_parts(done({"config", "tiny.toml", "--model.ffn=48", "--model.vocab=300"}).out,
               {"\nffn = 48\n", "\nvocab = 300\n"});
  expect_part(done({"config", "tiny.toml", "--data.text=[]", "--data.tokens=none.bin"}).out, "\nvocab = 0\n");
}

// The quickstart shows two stages; a model or data of one's own trains on what is asked for.
TEST_F(Said, QuickstartGivesWayToWhatIsNamed) {
  const auto config = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"config"};
    all.insert(all.end(), words.begin(), words.end());
    return train::parse_config(done(all).out, "shown.toml");
  };
  EXPECT_EQ(config({"--train.lr=1e-2"}).parallel.mesh.substr(0, 4), "pp=2");
  EXPECT_EQ(config({"--train.lr=1e-2"}).train.lr, 1e-2);
  for (const char* own : {"--data.text=text.txt", "--model.layers=1"}) {
    EXPECT_EQ(config({own}).parallel.mesh, "auto") << own;
    EXPECT_EQ(config({own}).parallel.zero, 0) << own;
    EXPECT_EQ(config({own}).train.micro_batch, 0) << own;
    EXPECT_EQ(config({own}).model.width, 128) << own;
  }
  EXPECT_EQ(config({"--data.text=text.txt", "--parallel.mesh=dp=2"}).parallel.mesh, "dp=2");
  EXPECT_EQ(config({"--parallel.mesh=dp=2"}).parallel.zero, 0);
  EXPECT_EQ(config({"--parallel.mesh=dp=2"}).train.micro_batch, 0);
  EXPECT_EQ(config({"tiny.toml", "--train.batch=8"}).train.batch, 8);
  const Finished f = done({"train", "--data.text=text.txt", "--parallel.mesh=dp=2", "--model.width=16",
                           "--model.layers=1", "--model.context=16", "--train.steps=2", "--train.warmup=1"});
  const std::string first = f.out.substr(0, f.out.find('\n'));
  expect_part(first, "built-in quickstart with your data.text, parallel.mesh, model.width, model.layers, …");
  expect_none(f.out, "replayed");
  // Text of one's own is continued by its own words, and the quickstart's as headers go.
  expect_none(f.out, "template<");
  const Finished quick = done({"train", "--train.steps=1", "--replay=0"});
  expect_part(quick.out, "untrained says:  \"template<");
  expect_part(quick.out, "--prompt 'template<'");
  // What is loaded has a shape of its own.
  const train::Config loaded =
      config({"--init.from=" + kFolders + "gpt2-tied", "--data.tokens=" + kFolders + "tokens.bin"});
  EXPECT_EQ(loaded.model.family, "gpt2");
}

TEST_F(Said, AModelThatIsLoadedIsNotCalledUntrained) {
  done({"train", "--train.steps=1", "--replay=0", "--parallel.mesh=dp=1", "--model.family=gpt2", "--model.width=16",
        "--model.layers=1", "--model.context=16", "--output.dir=run"});
  done({"export", "run", "folder"});
  const Finished f = done({"train", "folder/", "--data.text=text.txt", "--train.steps=1", "--model.context=16"});
  expect_part(f.out, "\nas loaded, it says:  \"");
  expect_none(f.out, "untrained");
}

TEST_F(Said, DataThatNobodyNamed) {
  write("model.toml", "[model]\nwidth = 16\nheads = 2\nlayers = 1\ncontext = 16\n");
  const std::string warning = "no data was named: the model reads this machine's C++ headers";
  expect_parts(done({"train", "model.toml", "--dry-run"}).err, {"warning: " + warning, "data.text or data.tokens"});
  // A model of one's own over the quickstart, whose text it is; the run's log says so too.
  const std::vector<std::string> own = {
      "train", "--model.width=16", "--model.heads=2", "--model.layers=1", "--model.context=16", "--train.steps=1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = own;
    words.insert(words.end(), more.begin(), more.end());
    return done(words).err;
  };
  expect_part(with({"--output.dir=own"}), "warning: " + warning);
  expect_part(read("own/log.txt"), warning);
  expect_none(with({"--output.dir=named", "--data.text=text.txt"}), "no data was named");
  expect_none(done({"train", "quickstart", "--dry-run"}).err, "no data was named");
  expect_part(refused({"train", kFolders + "gpt2-tied", "--dry-run"}), "data.text");
  done({"import", kFolders + "gpt2-tied", "run"});
  expect_part(refused({"train", "run", "--resume"}), "data.text");
  expect_part(refused({"train", "quickstart", "--data.text="}), "data.text");
}

// Nothing of an imported model is trained yet: how to train it may still be said.
TEST_F(Said, AnImportedRunTakesDataAndBatch) {
  done({"import", kFolders + "gpt2-tied", "run"});
  done({"train", "run", "--resume", "--data.tokens=" + kFolders + "tokens.bin", "--train.batch=4", "--train.steps=2",
        "--train.optimizer=sgd", "--model.dropout=0.1"});
  EXPECT_EQ(metrics("run").size(), 2U);
  expect_part(refused({"train", "run", "--resume", "--train.batch=8", "--train.steps=3"}), "train.batch = 8");
}

TEST_F(Said, TextFromGlobsAndMixtures) {
  write("a/one.txt", read("text.txt"));
  write("a/two.txt", read("text.txt") + "more");
  write("b.txt", std::string(6000, 'x'));
  expect_part(done({"train", "tiny.toml", "--data.text=a/*.txt", "--dry-run"}).out, "2 text files");
  const Finished f = done({"train", "tiny.toml", R"(--data.text=["a/*.txt@3", "b.txt@1"])", "--output.dir=run"});
  expect_part(f.out, "2 sources (a/*.txt 75%, b.txt 25%)");
  expect_part(refused({"train", "tiny.toml", "--data.text=a/*.md"}), "a/*.md");
  expect_part(refused({"train", "tiny.toml", R"(--data.text=["a/*.txt@3", "b.txt"])"}), "mixing weight");
  // A comma in a name.
  write("c,d.txt", read("text.txt"));
  done({"train", "tiny.toml", R"(--data.text=["c,d.txt"])", "--dry-run"});
}

TEST_F(Said, NamesThatAreNotUtf8) {
  write("caf\xE9.txt", read("text.txt"));
  const std::string error = refused({"train", "tiny.toml", "--data.text=caf\xE9.txt"});
  expect_part(error, "data.text");
  expect_part(error, "caf\\xE9.txt");
  // A folder or configuration of such a name is only mentioned.
  fs::copy(folder() / "tiny.toml", folder() / "tin\xFF.toml");
  done({"train", "tin\xFF.toml", "--output.dir=run", "--train.steps=1"});
  done({"train", "run", "--resume", "--train.steps=2"});
}

TEST_F(Said, MessagesSayWhatHelps) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1"});
  for (const std::vector<std::string>& words : {std::vector<std::string>{"export", "run", "out", "--step=-1"},
                                                {"generate", "--from=run", "--prompt=a", "--step=-1"},
                                                {"eval", "--from=run", "--step=-1"}}) {
    expect_part(refused(words), "--step");
    EXPECT_LT(refused(words).size(), 120U) << words.front();
  }
  // Where nothing is held out there is still too little.
  write("short.txt", "short");
  expect_none(refused({"train", "tiny.toml", "--data.text=short.txt"}), "data.holdout");
  expect_part(refused({"train", "tiny.toml", "--data.text=short.txt"}), "model.context");
  write("short.toml", "[train]\nfoo = 1\n");
  expect_none(refused({"train", "short.toml"}), "did you mean");
  expect_part(refused({"train", "tiny.toml", "--train.lrr=1"}), "did you mean train.lr?");
  const std::string remat = refused({"memory", "tiny.toml", "--model.layers=2", "--memory.remat=every:9"});
  expect_part(remat, "memory.remat = \"every:9\" recomputes nothing of this model");
  expect_none(remat, "6 layers");
  const Finished bad = run({"train", "tiny.toml", "--output.dir=bad", "--train.lr=1e30", "--train.warmup=0"});
  EXPECT_EQ(bad.code, 1);
  expect_none(bad.err, "nan");
}

// Of a model that its one update has ruined: a sign says nothing, and machines differ in it.
TEST_F(Said, WhatIsNoNumberHasNoSign) {
  for (const char* lr : {"--train.lr=1e20", "--train.lr=1e30"}) {
    const Finished f = done({"train", "tiny.toml", "--train.steps=1", "--train.eval_every=1", "--train.warmup=0",
                             "--train.clip=0", "--train.optimizer=sgd", lr});
    expect_part(f.err, "held out nan");
    expect_part(f.out, "held out nan");
    expect_none(f.err + f.out, "-nan");
  }
}

TEST_F(Said, BenchmarksWithTheirOwnDefaults) {
  expect_part(refused({"bench", "scaling", "tiny.toml", "--ranks=0"}), "--ranks");
  expect_part(refused({"bench", "scaling", "tiny.toml", "--ranks=1,-2"}), "--ranks");
  const auto offload = nlohmann::json::parse(done({"bench", "offload", "--steps=1", "--warmup=0", "--json"}).out);
  EXPECT_GT(offload["disk_bytes"], 0);
}

// What a benchmark sets by itself is not taken from the command line in silence.
TEST_F(Said, BenchmarksRefuseTheKeysThatTheySet) {
  expect_parts(refused({"bench", "scaling", "tiny.toml", "--parallel.mesh=tp=2"}),
               {"parallel.mesh = tp=2 has no effect on trireme bench scaling", "--ranks"});
  expect_part(refused({"bench", "scaling", "tiny.toml", "--runtime.threads=2"}), "runtime.threads = 2 has no effect");
  expect_part(refused({"bench", "overlap", "tiny.toml", "--parallel.overlap=false"}),
              "parallel.overlap = false has no effect on trireme bench overlap");
  expect_part(refused({"bench", "overlap", "tiny.toml", "--table", "--parallel.mesh=tp=2"}),
              "parallel.mesh = tp=2 has no effect on trireme bench overlap --table");
  expect_part(refused({"bench", "offload", "tiny.toml", "--memory.offload=none"}), "memory.offload = \"none\" leaves");
  // A plan of one's own is not replaced by the one that offloads everything of the quickstart.
  expect_part(refused({"bench", "offload", "--parallel.mesh=tp=3", "--steps=1"}), "tp");
}

TEST_F(Said, MicroBatchesAreCountedAsTheKeyCounts) {
  const Finished f = done({"train", "tiny.toml", "--parallel.mesh=dp=2", "--train.batch=8", "--train.micro_batch=2",
                           "--output.dir=run", "--train.steps=1"});
  expect_part(f.out, "2 micro-batches of 2 rows");
  EXPECT_EQ(nlohmann::json::parse(read("run/run.json"))["plan"]["micro_batch"], 2);
}

// A finished run is done, whatever becomes of the comparison that follows it.
TEST_F(Said, ReplayDoesNotNeedToFitTheLimitOfARank) {
  const std::vector<std::string> two = {"--parallel.mesh=dp=2", "--parallel.zero=3", "--train.batch=64"};
  std::vector<std::string> words = {"memory", "tiny.toml", "--brief", "--json"};
  words.insert(words.end(), two.begin(), two.end());
  const auto bytes = nlohmann::json::parse(done(words).out)["ranks"][0]["predicted_peak_bytes"].get<std::int64_t>();
  words = {"train", "tiny.toml", "--replay=2", "--output.dir=run", "--memory.limit=" + std::to_string(bytes)};
  words.insert(words.end(), two.begin(), two.end());
  expect_part(done(words).out, "replayed on one rank");
}

// Built-in configurations of images read the shape of files.
TEST_F(Said, ImageFilesOverABuiltInConfiguration) {
  const auto big = [](std::uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  std::string images = std::string("\0\0\x08\x03", 4) + big(40) + big(12) + big(12);
  std::string labels = std::string("\0\0\x08\x01", 4) + big(40);
  for (int i = 0; i < 40; ++i) {
    images += std::string(144, static_cast<char>(i * 5));
    labels += static_cast<char>(i % 3);
  }
  write("mnist/train-images-idx3-ubyte", images);
  write("mnist/train-labels-idx1-ubyte", labels);
  const Finished f =
      done({"train", "mlp", "--data.images=mnist", "--train.steps=2", "--train.batch=4", "--output.dir=run"});
  expect_part(f.out, "12×12");
  expect_part(f.err, "images/s");
  expect_none(f.err, "tok/s");
  expect_part(f.out, "% of the images right");
  expect_part(f.err, ", accuracy ");
  const std::string eval = done({"eval", "--from=run"}).out;
  expect_none(eval, "perplexity");
  expect_part(eval, "; accuracy ");
  // The same model, the same held-out images.
  const auto json = nlohmann::json::parse(done({"eval", "--from=run", "--json"}).out);
  EXPECT_NEAR(json["accuracy"].get<double>(), metrics("run").back()["eval_accuracy"].get<double>(), 1e-6);
}

// Files that shrink while they are read: a message, not the end by a signal, and nothing that was trained is lost.
TEST_F(Said, AFileCutShortEndsTheRunWithAMessageAndACheckpoint) {
  std::string tokens;
  for (int i = 0; i < 200'000; ++i) tokens += {static_cast<char>(i * i % 50), static_cast<char>(i % 2)};
  std::string pixels, labels;
  for (int i = 0; i < 2000; ++i) {
    pixels += std::string(64, static_cast<char>(i));
    labels += static_cast<char>(i % 3);
  }
  const std::string images = "mnist/train-images-idx3-ubyte";
  write("mnist/train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\x07\xd0", 8) + labels);
  const std::vector<std::string> text = {"tiny.toml", "--data.text=", "--data.tokens=tokens.bin", "--model.vocab=512"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const struct {
    std::string file, contents;
    std::vector<std::string> words;
  } cases[] = {
      {"tokens.bin", tokens, text},
      {"tokens.bin", tokens, with(text, {"--parallel.mesh=dp=2", "--train.eval_every=1000000"})},
      {"tokens.bin", tokens,
       with(text, {"--parallel.mesh=pp=2", "--parallel.pipeline=pipedream", "--model.tie_embeddings=false"})},
      {images,
       std::string("\0\0\x08\x03\0\0\x07\xd0\0\0\0\x08\0\0\0\x08", 16) + pixels,
       {"mlp", "--data.images=mnist", "--model.width=8", "--train.batch=4"}},
  };
  for (const auto& [file, contents, words] : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    write(file, contents);
    fs::remove_all(folder() / "run");
    const std::vector<std::string> endless = {"--output.dir=run", "--train.steps=1000000", "--train.schedule=constant"};
    std::vector<std::string> all = with({"train"}, words);
    Running running(folder(), with(all, endless));
    ASSERT_TRUE(running.wait_until([&] { return lines("run/metrics.jsonl") >= 3; }));
    fs::resize_file(folder() / file, 1000);
    const Finished f = running.wait();
    EXPECT_EQ(f.code, 1) << f.err;
    expect_part(f.err, file + ": was cut from ");
    ASSERT_EQ(names_in("run/checkpoints").size(), 1U) << f.err;
    const std::int64_t step = metrics("run").back()["step"];
    EXPECT_EQ(names_in("run/checkpoints").front(), step_name(step));
    expect_part(f.err, fmt::format("; the state before it is saved as step {} in run", step));
    write(file, contents);
    done({"train", "run", "--resume", fmt::format("--train.steps={}", step + 2)});
  }
}

// A disk without room for what a command prints is no success: nobody has seen the answer.
TEST_F(Said, LostOutputIsAFailure) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::vector<std::string> commands = {
      "generate --from run --prompt oar --tokens 4",
      "generate --from run --prompt oar --tokens 4 --json",
      "eval --from run",
      "lesson",
      "memory tiny.toml",
      "memory tiny.toml --json --brief",
      "inspect graph tiny.toml",
      "inspect program tiny.toml",
      "inspect schedule --stages 2 --micro-batches 4",
      "config",
      "config quickstart",
      "doctor",
      "completion bash",
      "export run theirs",
      "import theirs again",
      "compress run --out small --weights int8 --decode 0",
      "simulate tiny.toml --cluster h100",
      "tokenize text.txt --out tokens.bin --tokenizer bytes",
      "bench gemm --help",
      "--help",
      "--version",
      "",
      "train tiny.toml --output.dir=other",
  };
  for (const std::string& command : commands) {
    const std::string line =
        fmt::format("cd {} && {} {} >/dev/full 2>err.txt", folder().string(), program_path(), command);
    const int status = std::system(line.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << command << ": " << status << "\n" << read("err.txt");
    expect_part(read("err.txt"), "error: ");
    expect_part(read("err.txt"), "No space left on device");
  }
  // What was trained is there all the same.
  EXPECT_EQ(state("other", kSteps), state("run", kSteps));
}

// runs/latest follows what is trained: the same command can be given twice.
TEST_F(Said, TheLatestRunIsTheOneThatWasTrained) {
  done({"train", "tiny.toml"});
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny");
  done({"compress", "runs/latest", "--out=runs/small", "--weights=int8", "--decode=0"});
  done({"export", "runs/latest", "theirs"});
  done({"import", "theirs", "runs/imported"});
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny");
  done({"train", "tiny.toml"});
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny-2");
}

// Bytes are a vocabulary too: what is exported generates what the run does.
TEST_F(Said, AnExportedRunOfBytesHasItsTokenizer) {
  done({"train", "tiny.toml", "--output.dir=run"});
  done({"export", "run", "theirs"});
  ASSERT_TRUE(exists("theirs/tokenizer.json"));
  const auto said = [&](const char* from) {
    return nlohmann::json::parse(
        done({"generate", "--from", from, "--prompt=Caf\xC3\xA9 (oar)", "--tokens=8", "--temperature=0", "--json"})
            .out);
  };
  EXPECT_EQ(said("run"), said("theirs"));
  // Tokens without one are worth a word.
  std::string tokens;
  for (const char c : read("text.txt")) tokens += {c, '\0'};
  write("tokens.bin", tokens);
  done({"train", "tiny.toml", "--output.dir=none", "--data.text=[]", "--data.tokens=tokens.bin",
        "--data.tokenizer=none", "--model.vocab=256"});
  expect_part(done({"export", "none", "untold"}).err, "warning: the folder has no tokenizer");
}

TEST_F(Said, AFileOfMoreBitsThanTheRunIsWorthAHint) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.width=32"});
  done({"compress", "run", "--out=small", "--weights=int4:32", "--decode=0", "--calibrate=0"});
  expect_part(done({"export", "small", "small.gguf"}).err, "--type q4_0 is as small");
  EXPECT_EQ(done({"export", "small", "smaller.gguf", "--type=q4_0"}).err, "");
  EXPECT_EQ(done({"export", "run", "run.gguf"}).err, "");
}

TEST_F(Said, AnnotationsThatTakeThePlaceOfAFamilysOwnAreWarnedOf) {
  const std::vector<std::string> run = {"train",
                                        "tiny.toml",
                                        "--dry-run",
                                        "--model.family=gpt2",
                                        "--parallel.mesh=tp=2",
                                        "--parallel.sharding.wte.weight=vocab:tp"};
  const std::string part = "Left out: \"*.attn.qkv.weight\" = \"out:tp\", \"*.mlp.up.weight\" = \"out:tp\"";
  expect_part(done(run).err, part);
  std::vector<std::string> all = run;
  all.insert(all.end(), {"--parallel.sharding.*.attn.qkv.weight=out:tp", "--parallel.sharding.*.mlp.up.weight=out:tp"});
  expect_none(done(all).err, "Left out");
}

// What was asked for is kept, so that a resumed run is not spread over more ranks.
TEST_F(Said, OneRankThatWasAskedForIsKept) {
  done({"train", "tiny.toml", "--train.steps=1", "--parallel.mesh=dp=1", "--output.dir=one"});
  expect_part(done({"config", "one"}).out, "\"dp=1\"");
}

TEST_F(Said, WhatGainsNothingOnACpuIsWarnedOf) {
  expect_part(done({"train", "tiny.toml", "--dry-run", "--runtime.overlap_wgrad=true"}).err,
              "warning: runtime.overlap_wgrad = true gains no time on a CPU");
  expect_none(done({"train", "tiny.toml", "--dry-run", "--runtime.overlap_wgrad=false"}).err, "overlap_wgrad");
}

}  // namespace
}  // namespace trireme::testing
