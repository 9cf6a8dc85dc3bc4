// A run that was cut in two ends where the undisturbed one does.
#include <gtest/gtest.h>

#include <csignal>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Resume : public Program {
 protected:
  // What one run of six steps leaves, against three steps and a resumed rest.
  void expect_same_end(const std::vector<std::string>& keys) const {
    const auto train = [&](const std::string& run, const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"train", "tiny.toml", "--output.dir=" + run, "--train.decay_steps=6"};
      arguments.insert(arguments.end(), keys.begin(), keys.end());
      arguments.insert(arguments.end(), more.begin(), more.end());
      return done(arguments);
    };
    train("whole", {});
    train("cut", {"--train.steps=3"});
    const Finished f = train("cut", {"--train.steps=6", "--resume"});
    EXPECT_NE(f.err.find("step 3"), std::string::npos) << f.err;
    EXPECT_EQ(state("cut", kSteps), state("whole", kSteps));
    const auto a = metrics("whole");
    const auto b = metrics("cut");
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "peak_bytes", "loss_scale", "skipped"})
        EXPECT_EQ(a[i].value(key, nlohmann::json()), b[i].value(key, nlohmann::json())) << key << " of step " << i + 1;
  }
};

// The files have the same names and other contents.
TEST_F(Resume, ChangedDataAreReported) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  const std::string said = "the data have changed since run began";
  const auto resumed = [&](int steps) {
    return done({"train", "run", "--resume", "--train.steps=" + std::to_string(steps)}).err;
  };
  EXPECT_EQ(resumed(3).find(said), std::string::npos);
  std::string text = read("text.txt");
  for (char& c : text) c = c == 'e' ? 'o' : c;
  write("text.txt", text);
  EXPECT_NE(resumed(4).find(said), std::string::npos);
  EXPECT_EQ(resumed(5).find(said), std::string::npos) << "the new data are what the run reads now";
}

TEST_F(Resume, EndsAsTheUndisturbedRun) { expect_same_end({"--model.dropout=0.1"}); }
TEST_F(Resume, EndsAsTheUndisturbedRunInLowPrecision) {
  expect_same_end({"--train.precision=bf16", "--train.micro_batch=2"});
}
// The scale starts so high that updates are skipped on both sides of the cut, and doubles on both.
TEST_F(Resume, EndsAsTheUndisturbedRunWithALossScale) {
  expect_same_end({"--train.precision=fp16", "--train.loss_scale=4294967296", "--train.loss_scale_window=1"});
  std::size_t skipped = 0;
  for (const auto& line : metrics("whole")) skipped += line["skipped"].get<bool>() ? 1 : 0;
  EXPECT_GT(skipped, 0U);
  EXPECT_NE(metrics("cut")[3]["loss_scale"], 4294967296.0);
}
TEST_F(Resume, EndsAsTheUndisturbedRunWithRunningStatistics) {
  expect_same_end({"--model.family=convnet", "--model.image=8", "--model.width=4", "--data.images=synthetic",
                   "--train.optimizer=sgd", "--train.micro_batch=2"});
}

TEST_F(Resume, RewindsMetricsToTheCheckpoint) {
  done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=4"});
  const std::string end = state("run", 6);
  const std::string whole = read("run/metrics.jsonl");
  fs::remove_all(folder() / "run/checkpoints" / step_name(6));
  // A crash in the middle of a line.
  write("run/metrics.jsonl", whole + R"({"step":7,"lo)");
  done({"train", "tiny.toml", "--output.dir=run", "--resume"});
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 6U);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  EXPECT_EQ(state("run", 6), end);
}

TEST_F(Resume, SkipsABrokenCheckpointAndReplacesIt) {
  done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=4", "--output.keep=1"});
  const std::string end = state("run", 6);
  done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=4", "--overwrite", "--output.keep=2"});
  const std::string file = "run/checkpoints/" + step_name(6) + "/state.safetensors";
  write(file, end.substr(0, end.size() / 2));
  const Finished f = done({"train", "tiny.toml", "--output.dir=run", "--resume", "--output.keep=1"});
  EXPECT_NE(f.err.find("warning: skipping run/checkpoints/" + step_name(6)), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("at step 4"), std::string::npos) << f.err;
  EXPECT_EQ(read(file), end);
}

TEST_F(Resume, StartsFreshAndSaysSoWithoutACheckpoint) {
  const Finished f = done({"train", "tiny.toml", "--output.dir=run", "--resume"});
  EXPECT_NE(f.err.find("no checkpoint in run: starting fresh"), std::string::npos) << f.err;
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
}

// A run whose checkpoints are all damaged is work that a person may still want to save.
TEST_F(Resume, RefusesWhenNoCheckpointCanBeUsedAndChangesNothing) {
  done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=3"});
  const std::string six = "run/checkpoints/" + step_name(6);
  const std::string three = "run/checkpoints/" + step_name(3);
  const std::string half = state("run", 6).substr(0, 1000);
  write(six + "/state.safetensors", half);
  fs::remove(folder() / three / "manifest.json");
  const std::string metrics_before = read("run/metrics.jsonl");
  const std::string config_before = read("run/config.toml");
  const std::string error = refused({"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=9"});
  for (const std::string& part : {six + "/state.safetensors", three + "/manifest.json", std::string("--overwrite")})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_EQ(read("run/metrics.jsonl"), metrics_before);
  EXPECT_EQ(read("run/config.toml"), config_before);
  EXPECT_EQ(read(six + "/state.safetensors"), half);
  EXPECT_TRUE(exists(three + "/state.safetensors"));
  // Others that read checkpoints say the same.
  for (const std::vector<std::string>& command : {std::vector<std::string>{"generate", "--from=run", "--prompt=a"},
                                                  {"eval", "--from=run"},
                                                  {"export", "run", "o"}})
    EXPECT_NE(refused(command).find(three + "/manifest.json"), std::string::npos) << command.front();
  done({"train", "tiny.toml", "--output.dir=run", "--overwrite"});
}

TEST_F(Resume, RefusesWhenCheckpointsAreOutOfReach) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string metrics_before = read("run/metrics.jsonl");
  const std::vector<std::string> resume = {"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=8"};
  fs::rename(folder() / "run/checkpoints", folder() / "elsewhere");
  fs::create_directory_symlink("../not-mounted", folder() / "run/checkpoints");
  EXPECT_NE(refused(resume).find("../not-mounted"), std::string::npos);
  // What a disk that is not mounted leaves: an empty folder.
  fs::remove(folder() / "run/checkpoints");
  fs::create_directory(folder() / "run/checkpoints");
  EXPECT_NE(refused(resume).find("step 6"), std::string::npos);
  EXPECT_EQ(read("run/metrics.jsonl"), metrics_before);
  fs::remove(folder() / "run/checkpoints");
  fs::create_directory_symlink("../elsewhere", folder() / "run/checkpoints");
  done(resume);
  EXPECT_EQ(metrics("run").size(), 8U);
}

TEST_F(Resume, WithoutAnArgumentTakesTheLatestRun) {
  done({"train", "tiny.toml", "--train.steps=2"});
  done({"train", "--resume", "--train.steps=4"});
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"latest", "tiny"}));
  EXPECT_EQ(metrics("runs/tiny").size(), 4U);
  fs::remove_all(folder() / "runs/tiny");
  EXPECT_NE(refused({"train", "--resume"}).find("runs/latest"), std::string::npos);
}

TEST_F(Resume, WithoutAFolderTakesTheNewestRun) {
  done({"train", "tiny.toml", "--train.steps=2"});
  done({"train", "tiny.toml", "--train.steps=3"});
  done({"train", "tiny.toml", "--resume"});
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"latest", "tiny", "tiny-2"}));
  EXPECT_EQ(metrics("runs/tiny").size(), 2U);
  EXPECT_EQ(metrics("runs/tiny-2").size(), static_cast<std::size_t>(kSteps));
  fs::remove_all(folder() / "runs/tiny");
  done({"train", "tiny.toml", "--resume", "--train.steps=8"});
  EXPECT_EQ(metrics("runs/tiny-2").size(), 8U);
}

// A run that is named by output.dir alone goes on as it was: what the command line leaves open is the run's own.
TEST_F(Resume, OutputDirAloneNamesTheRun) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2", "--model.layers=3"});
  done({"train", "--resume", "--output.dir=run", "--train.steps=4", "--parallel.mesh=dp=2"});
  EXPECT_EQ(metrics("run").size(), 4U);
  EXPECT_NE(read("run/config.toml").find("layers = 3"), std::string::npos);
  expect_parts(refused({"train", "--resume", "--output.dir=rum"}),
               {"output.dir = \"rum\" holds no run", "did you mean \"run\"?"});
  EXPECT_FALSE(exists("rum"));
  EXPECT_FALSE(exists("runs"));
  // With a configuration that is named, its keys count.
  expect_parts(refused({"train", "tiny.toml", "--resume", "--output.dir=run", "--train.steps=6"}),
               {"model.layers = ", "but the run in run has 3", "`trireme train run --resume` takes them from it"});
}

// A scheduler starts the same command again, with --resume, whenever the run was stopped: also before its folder was
// made, and without a name of a configuration.
TEST_F(Resume, ACommandOfKeysAloneStartsWhereNothingIs) {
  const std::vector<std::string> words = {
      "train",           "--resume",           "--output.dir=run", "--data.text=text.txt",
      "--train.steps=2", "--model.context=16", "--model.width=16", "--train.batch=4"};
  done(words);
  EXPECT_EQ(metrics("run").size(), 2U);
  expect_part(done(words).out, "nothing to do");
  fs::create_directory(folder() / "empty");
  std::vector<std::string> other = words;
  other[2] = "--output.dir=empty";
  done(other);
  EXPECT_EQ(metrics("empty").size(), 2U);
  // What is there and no run stays as it is.
  write("notes/mine.txt", "kept");
  other[2] = "--output.dir=notes";
  expect_part(refused(other), "holds no run");
}

// A run folder in place of a configuration is continued where it lies, whatever it is called.
TEST_F(Resume, RunFolderIsItsOwnConfiguration) {
  done({"train", "tiny.toml", "--train.steps=2"});
  done({"train", "runs/latest", "--resume", "--train.steps=3"});
  EXPECT_EQ(metrics("runs/tiny").size(), 3U);
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny");
  fs::rename(folder() / "runs/tiny", folder() / "moved");
  done({"train", "moved/", "--resume", "--train.steps=4"});
  EXPECT_EQ(metrics("moved").size(), 4U);
}

TEST_F(Resume, OfAFinishedRunDoesNothing) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string end = state("run", kSteps);
  const Finished f = done({"train", "tiny.toml", "--output.dir=run", "--resume"});
  EXPECT_NE(f.out.find("nothing to do: run has done its 6 steps"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(state("run", kSteps), end);
}

// Not even what was asked for becomes the run's.
TEST_F(Resume, OfAFinishedRunChangesNothing) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::vector<std::string> files = {"run/config.toml", "run/run.json", "run/plan.toml", "run/metrics.jsonl"};
  std::vector<std::string> before;
  before.reserve(files.size());
  for (const std::string& file : files) before.push_back(read(file));
  const std::string end = state("run", kSteps);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--train.steps=3", "--train.lr=0.5"}, {"--train.lr=0.5", "--parallel.mesh=dp=2"}}) {
    std::vector<std::string> words = {"train", "run", "--resume"};
    words.insert(words.end(), more.begin(), more.end());
    expect_part(done(words).out, "nothing to do: run has done its 6 steps");
    for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(read(files[i]), before[i]) << files[i];
    EXPECT_EQ(state("run", kSteps), end);
  }
}

// What a kill has left in it goes also where nothing is trained, and the checkpoints stay.
TEST_F(Resume, OfAFinishedRunRemovesWhatWasLeftOver) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string checkpoints = "run/checkpoints/";
  const std::vector<std::string> names = names_in("run"), steps = names_in(checkpoints);
  write(checkpoints + step_name(5) + ".partial/state.safetensors", "half");
  write(checkpoints + step_name(kSteps) + ".replaced/state.safetensors", "old");
  expect_part(done({"train", "run", "--resume"}).out, "nothing to do");
  EXPECT_EQ(names_in("run"), names);
  EXPECT_EQ(names_in(checkpoints), steps);
}

TEST_F(Resume, RefusesWhatWouldMakeAnotherRun) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  const std::string before = read("run/config.toml");
  const std::string metrics_before = read("run/metrics.jsonl");
  write("other.txt", read("text.txt"));
  for (const char* change : {"model.width=32", "model.dropout=0.1", "data.text=other.txt", "data.order=sequential",
                             "train.seed=2", "train.optimizer=sgd", "train.batch=8", "train.weight_decay=0.2",
                             "train.eps=1e-6", "train.betas=0.8,0.9", "init.from=elsewhere"}) {
    const std::string error =
        refused({"train", "tiny.toml", "--output.dir=run", "--resume", std::string("--") + change});
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    EXPECT_NE(error.find(key), std::string::npos) << error;
  }
  EXPECT_EQ(read("run/config.toml"), before);
  EXPECT_EQ(read("run/metrics.jsonl"), metrics_before);
}

TEST_F(Resume, AcceptsWhatDoesNotChangeTheMathematics) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  done({"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=4", "--runtime.threads=2",
        "--output.log_every=2", "--output.keep=5", "--memory.limit=1GiB", "--train.micro_batch=2"});
  EXPECT_EQ(metrics("run").back()["step"], 4);
}

TEST_F(Resume, SaysWhatIsSetOtherwise) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  const std::string said = done({"train", "run", "--resume", "--train.steps=4", "--train.lr=0.1"}).err;
  expect_part(said, "resuming run at step 2 with train.steps = 4 (it was 2), train.lr = 0.1 (it was 0.01)\n");
  expect_part(done({"train", "run", "--resume", "--train.steps=5", "--output.keep=3"}).err,
              "resuming run at step 4 with train.steps = 5 (it was 4)\n");
}

// Weights and optimizer are f32 in every precision; a loss scale is begun where there was none.
TEST_F(Resume, InAnotherPrecision) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  done({"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=4", "--train.precision=fp16"});
  done({"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=6", "--train.precision=bf16"});
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[2]["loss_scale"], 65536);
  EXPECT_FALSE(lines[4].contains("loss_scale"));
}

// Each rank's momentum cannot become that of the run.
TEST_F(Resume, WithCompressionThatKeepsMomentumOnItsRanks) {
  const std::vector<std::string> two = {"train", "tiny.toml", "--output.dir=run", "--train.optimizer=sgd",
                                        "--parallel.mesh=dp=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), two.begin(), two.end());
    return more;
  };
  for (const auto& [kind, other] : {std::pair("topk:0.1", "onebit"), {"onebit", "topk:0.1"}}) {
    const std::string compress = std::string("--parallel.compress=") + kind;
    done(with({compress, "--train.steps=2", "--overwrite"}));
    const std::string config = read("run/config.toml");
    const std::string error = refused(with({"--resume"}));
    expect_parts(error, {"parallel.compress = \"none\"", '"' + std::string(kind) + '"', "momentum"});
    EXPECT_EQ(read("run/config.toml"), config);
    done(with({"--resume", std::string("--parallel.compress=") + other}));
    EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
  }
}

// What the default of the warm-up stands for is settled when compression begins, however long the run becomes: nothing
// is sent uncompressed again, and 1-bit Adam's variance counts the updates that it has seen.
TEST_F(Resume, CompressionKeepsItsWarmUp) {
  for (const auto& [optimizer, kind] : {std::pair("sgd", "topk:0.1"), {"sgd", "onebit"}, {"adamw", "onebit"}}) {
    SCOPED_TRACE(std::string(optimizer) + " with " + kind);
    const std::vector<std::string> common = {"train", "tiny.toml", "--parallel.mesh=dp=2",
                                             std::string("--train.optimizer=") + optimizer,
                                             std::string("--parallel.compress=") + kind};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), common.begin(), common.end());
      return more;
    };
    done(with({"--output.dir=whole", "--train.steps=8", "--parallel.compress_warmup=2", "--overwrite"}));
    for (const char* run : {"folder", "file"})
      done(with({std::string("--output.dir=") + run, "--train.steps=8", "--overwrite"}));
    done({"train", "whole", "--resume", "--train.steps=40"});
    done({"train", "folder", "--resume", "--train.steps=40"});
    done(with({"--output.dir=file", "--resume", "--train.steps=40"}));
    EXPECT_EQ(state("folder", 40), state("whole", 40));
    EXPECT_EQ(state("file", 40), state("whole", 40));
    const auto lines = metrics("folder");
    for (std::size_t i = 2; i < lines.size(); ++i)
      EXPECT_LT(lines[i]["sent_bytes"], lines[0]["sent_bytes"].get<std::int64_t>() / 2) << "step " << i + 1;
  }
}

TEST_F(Resume, CompressionThatIsSwitchedOnBeginsWithItsWarmUp) {
  const auto sent = [&](std::size_t step) { return metrics("run").at(step - 1)["sent_bytes"].get<std::int64_t>(); };
  for (const auto& [optimizer, kind] : {std::pair("sgd", "topk:0.1"), {"adamw", "onebit"}}) {
    SCOPED_TRACE(std::string(optimizer) + " with " + kind);
    done({"train", "tiny.toml", "--output.dir=run", "--parallel.mesh=dp=2", "--train.steps=6", "--overwrite",
          std::string("--train.optimizer=") + optimizer});
    const std::string said = done({"train", "run", "--resume", "--train.steps=12", "--parallel.compress_warmup=2",
                                   std::string("--parallel.compress=") + kind})
                                 .err;
    expect_part(said, std::string("parallel.compress = \"") + kind +
                          "\" begins after step 8: 6 steps are done, and 2 more are its warm-up");
    const bool has_momentum = std::string(optimizer) == "sgd";
    EXPECT_EQ(said.find("SGD's momentum starts again from zero") != std::string::npos, has_momentum) << said;
    expect_part(read("run/config.toml"), "compress_warmup = 8\n");
    EXPECT_GT(2 * sent(8), sent(1));
    EXPECT_LT(2 * sent(9), sent(1));
    EXPECT_EQ(sent(12), sent(9));
    expect_none(done({"train", "run", "--resume", "--train.steps=100"}).err, "are its warm-up");
    EXPECT_EQ(sent(13), sent(9));
  }
  // A quarter of the steps that are left.
  done({"train", "tiny.toml", "--output.dir=run", "--parallel.mesh=dp=2", "--train.steps=6", "--overwrite"});
  expect_part(done({"train", "run", "--resume", "--train.steps=14", "--parallel.compress=onebit"}).err,
              "begins after step 8: 6 steps are done, and 2 more are its warm-up");
}

// What the run's file says of a compression that the command line replaces was typed by nobody: it goes without a word.
TEST_F(Resume, KeysOfACompressionThatIsReplacedGoWithIt) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=3", "--train.optimizer=sgd", "--parallel.mesh=dp=2",
        "--parallel.compress=topk:0.1", "--parallel.compress_warmup=2", "--parallel.momentum_masking=true"});
  const Finished f = run({"train", "run", "--resume", "--train.steps=6", "--parallel.compress=none"});
  EXPECT_EQ(f.code, 2) << f.err;
  expect_part(f.err, "error: parallel.compress = \"none\", but the run in run has \"topk:0.1\"");
  done({"train", "run", "--output.dir=other", "--train.steps=2", "--parallel.compress=none"});
  done({"train", "run", "--output.dir=third", "--train.steps=2", "--parallel.compress=int8"});
  // What was typed is refused as before.
  expect_part(refused({"train", "run", "--resume", "--parallel.compress=none", "--parallel.compress_warmup=3"}),
              "error: command line: parallel.compress_warmup = 3 belongs to compressed gradients");
}

// The folder is there with what it takes to go on, from the first moment in which it is there.
TEST_F(Resume, KilledAsSoonAsItsFolderIsThereARunGoesOn) {
  for (int kill = 0; kill < 8; ++kill) {
    fs::remove_all(folder() / "run");
    {
      Running running(folder(), {"train", "tiny.toml", "--output.dir=run"});
      ASSERT_TRUE(running.wait_until([&] { return exists("run"); }));
      running.signal(SIGKILL);
      running.wait();
    }
    ASSERT_TRUE(exists("run/config.toml"));
    ASSERT_TRUE(exists("run/run.json"));
  }
  done({"train", "run", "--resume"});
  EXPECT_EQ(std::ssize(metrics("run")), kSteps);
  // Of another that is to be overwritten, the configuration stays until the new one is there.
  done({"train", "tiny.toml", "--output.dir=run", "--overwrite", "--train.steps=2"});
  EXPECT_EQ(metrics("run").size(), 2U);
  fs::create_directory(folder() / "left");
  expect_part(refused({"train", "left", "--resume"}), "start it as then, with --output.dir=left");
  done({"train", "tiny.toml", "--output.dir=left", "--resume"});
}

TEST_F(Resume, ContradictsOverwrite) {
  const std::string error = refused({"train", "tiny.toml", "--resume", "--overwrite"});
  EXPECT_NE(error.find("--overwrite"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
