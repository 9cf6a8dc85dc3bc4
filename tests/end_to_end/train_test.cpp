// A run and what it leaves in its folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "end_to_end/program.h"
#include "trireme/io/safetensors.h"
#include "trireme/train/config.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

struct Family {
  std::string name;
  std::vector<std::string> keys;
};

std::vector<std::string> images(const std::string& family, int layers, int width, int image) {
  return {"--model.family=" + family,
          "--model.layers=" + std::to_string(layers),
          "--model.width=" + std::to_string(width),
          "--model.image=" + std::to_string(image),
          "--model.classes=3",
          "--data.images=synthetic",
          "--train.batch=16",
          "--train.lr=3e-3"};
}

class TrainFamily : public Program, public ::testing::WithParamInterface<Family> {};

// Every key of the contract, in every line.
void check_line(const nlohmann::json& line, std::int64_t step) {
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "step_ms", "peak_bytes",
                          "sent_bytes", "wall_s", "mfu", "exposed_comm_ms", "data_wait_ms"})
    EXPECT_TRUE(line.contains(key) && line[key].is_number()) << key << " in " << line;
  EXPECT_EQ(line["step"], step);
  EXPECT_GT(line["grad_norm"], 0);
  EXPECT_GT(line["tokens_per_s"], 0);
}

TEST_P(TrainFamily, LeavesACompleteRunFolderAndLearns) {
  std::vector<std::string> arguments = {"train", "tiny.toml", "--train.steps=40", "--train.schedule=constant"};
  arguments.insert(arguments.end(), GetParam().keys.begin(), GetParam().keys.end());
  const Finished f = done(arguments);
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"latest", "tiny"}));
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny");
  EXPECT_EQ(names_in("runs/tiny"), (std::vector<std::string>{"checkpoints", "config.toml", "log.txt", "metrics.jsonl",
                                                             "plan.toml", "run.json"}));

  const std::vector<nlohmann::json> lines = metrics("runs/tiny");
  ASSERT_EQ(lines.size(), 40U);
  double first = 0;
  double last = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    check_line(lines[i], static_cast<std::int64_t>(i) + 1);
    if (i < 10) first += lines[i]["loss"].get<double>();
    if (i >= 30) last += lines[i]["loss"].get<double>();
  }
  EXPECT_LT(last, 0.9 * first);
  EXPECT_TRUE(lines.back().contains("eval_loss"));
  EXPECT_FALSE(lines.front().contains("eval_loss"));

  EXPECT_EQ(names_in("runs/tiny/checkpoints"), std::vector<std::string>{step_name(40)});
  const io::SafetensorsFile saved((folder() / "runs/tiny/checkpoints" / step_name(40) / "state.safetensors").string());
  std::size_t weights = 0;
  for (const auto& tensor : saved.tensors()) {
    const bool optimizer = tensor.name.find('/') != std::string::npos;
    EXPECT_EQ(tensor.type.dtype, DType::f32) << tensor.name;
    if (!optimizer) ++weights;
  }
  EXPECT_GT(weights, 0U);

  // The resolved configuration loads, and names the same run.
  const train::Config config = train::load_config((folder() / "runs/tiny").string());
  EXPECT_EQ(config.train.steps, 40);
  EXPECT_TRUE(models::builtin_families().at(config.model.family).images || config.model.vocab == 256);
  const nlohmann::json run = nlohmann::json::parse(read("runs/tiny/run.json"));
  EXPECT_NE(run["command"].get<std::string>().find("--train.steps=40"), std::string::npos);
  for (const char* key : {"build", "hosts", "plan"}) EXPECT_TRUE(run.contains(key)) << key;
  EXPECT_EQ(run["plan"]["predicted_peak_bytes"], lines.back()["peak_bytes"]);
  EXPECT_NE(f.out.find("✓"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
  EXPECT_NE(read("runs/tiny/log.txt").find("parameters"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, TrainFamily,
                         ::testing::Values(Family{"gpt2", {}},
                                           Family{"llama", {"--model.family=llama", "--model.kv_heads=1"}},
                                           Family{"mlp", images("mlp", 2, 32, 8)},
                                           Family{"convnet", images("convnet", 2, 8, 12)},
                                           Family{"resnet18", images("resnet", 18, 4, 16)}),
                         [](const auto& one) { return one.param.name; });

using Train = Program;

TEST_F(Train, EveryPrecisionAndSeveralMicroBatches) {
  done({"train", "tiny.toml", "--train.precision=bf16", "--train.micro_batch=2", "--output.dir=run"});
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
}

// Where the time went: each share is one of the whole, and together they are all of it.
TEST_F(Train, SharesOfTheTimeAddUp) {
  for (const char* mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "pp=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    const Finished f = done({"train", "tiny.toml", "--output.dir=run", "--overwrite", "--train.steps=20",
                             "--train.micro_batch=1", std::string("--parallel.mesh=") + mesh});
    const std::size_t at = f.out.find("\ntime    ");
    ASSERT_NE(at, std::string::npos) << f.out;
    const std::string line = f.out.substr(at + 1, f.out.find('\n', at + 1) - at - 1);
    EXPECT_EQ(line.find("exposed communication") != std::string::npos, std::string(mesh) != "dp=1") << line;
    const std::regex share(R"((-?[0-9]+)%)");
    double sum = 0;
    int shares = 0;
    for (std::sregex_iterator i(line.begin(), line.end(), share), end; i != end; ++i, ++shares) {
      const double percent = std::stod((*i)[1]);
      EXPECT_GE(percent, 0) << line;
      EXPECT_LE(percent, 100) << line;
      sum += percent;
    }
    EXPECT_GE(shares, 5) << line;
    EXPECT_NEAR(sum, 100, 0.5 * shares) << line;
    for (const nlohmann::json& step : metrics("run")) {
      EXPECT_GE(step.at("exposed_comm_ms"), 0) << step;
      EXPECT_LE(step.at("exposed_comm_ms"), step.at("step_ms")) << step;
    }
  }
}

TEST_F(Train, DryRunWritesNothing) {
  const std::vector<std::string> before = names_in(".");
  const Finished f = done({"train", "tiny.toml", "--dry-run"});
  EXPECT_EQ(names_in("."), before);
  EXPECT_NE(f.out.find("predicted peak"), std::string::npos);
  EXPECT_NE(f.out.find("nothing was trained"), std::string::npos);
}

TEST_F(Train, DryRunReportsWhatWouldNotFit) {
  const std::string small = "--memory.limit=64KiB";
  const std::string small_says = "memory.limit = \"64KiB\" is too small";
  EXPECT_NE(refused({"train", "tiny.toml", small}).find(small_says), std::string::npos);
  const Finished limited = done({"train", "tiny.toml", "--dry-run", small});
  EXPECT_NE(limited.out.find("would not run here: " + small_says), std::string::npos);
  EXPECT_NE(limited.out.find("nothing was trained"), std::string::npos);
  const std::vector<std::string> many = {"--parallel.mesh=dp=1024", "--train.batch=1024"};
  EXPECT_NE(refused({"train", "tiny.toml", many[0], many[1]}).find("threads of one process are at most 64"),
            std::string::npos);
  const Finished wide = done({"train", "tiny.toml", "--dry-run", many[0], many[1]});
  EXPECT_NE(wide.out.find("would not run here: parallel.mesh = \"dp=1024\" has 1024 ranks"), std::string::npos);
}

TEST_F(Train, RunFoldersAreNumberedAndLatestFollows) {
  done({"train", "tiny.toml"});
  done({"train", "tiny.toml"});
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"latest", "tiny", "tiny-2"}));
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny-2");
  // Named through the link, a run is itself: its copy is numbered after it, and the link stays a link to a run.
  done({"train", "runs/latest"});
  EXPECT_TRUE(exists("runs/latest/metrics.jsonl"));
  EXPECT_EQ(fs::read_symlink(folder() / "runs/latest"), "tiny-2-2");
}

TEST_F(Train, TwoRunsOfOneSeedAreEqualToTheBit) {
  done({"train", "tiny.toml", "--output.dir=a", "--model.dropout=0.1"});
  done({"train", "tiny.toml", "--output.dir=b", "--model.dropout=0.1"});
  done({"train", "tiny.toml", "--output.dir=c", "--model.dropout=0.1", "--train.seed=2"});
  EXPECT_EQ(state("a", kSteps), state("b", kSteps));
  EXPECT_NE(state("a", kSteps), state("c", kSteps));
}

TEST_F(Train, FolderThatHoldsARunIsRefused) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string before = read("run/metrics.jsonl");
  const std::string error = refused({"train", "tiny.toml", "--output.dir=run"});
  for (const char* part : {"output.dir", "run", "--resume", "--overwrite"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_EQ(read("run/metrics.jsonl"), before);
}

TEST_F(Train, OverwriteReplacesTheRun) {
  done({"train", "tiny.toml", "--output.dir=run"});
  write("run/mine.txt", "kept");
  done({"train", "tiny.toml", "--output.dir=run", "--overwrite", "--train.steps=3"});
  EXPECT_EQ(metrics("run").size(), 3U);
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(3)});
  EXPECT_EQ(read("run/mine.txt"), "kept");
}

// A request that is refused must not have cost the run that was there.
TEST_F(Train, RefusedOverwriteLeavesTheRun) {
  done({"train", "tiny.toml", "--output.dir=run"});
  refused({"train", "tiny.toml", "--output.dir=run", "--overwrite", "--model.context=1000000"});
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
  EXPECT_TRUE(exists("run/checkpoints/" + step_name(kSteps)));
}

TEST_F(Train, CheckpointsByStepsAreKeptToTheNumberAsked) {
  done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=1", "--output.keep=3"});
  EXPECT_EQ(names_in("run/checkpoints"), (std::vector<std::string>{step_name(4), step_name(5), step_name(6)}));
}

TEST_F(Train, EvaluationIsLoggedEvenBetweenLoggedSteps) {
  done({"train", "tiny.toml", "--output.dir=run", "--output.log_every=4", "--train.eval_every=3", "--train.steps=8"});
  std::vector<std::int64_t> logged;
  std::vector<std::int64_t> evaluated;
  for (const nlohmann::json& line : metrics("run")) {
    logged.push_back(line["step"]);
    if (line.contains("eval_loss")) evaluated.push_back(line["step"]);
  }
  EXPECT_EQ(logged, (std::vector<std::int64_t>{3, 4, 6, 8}));
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{3, 6, 8}));
}

// A loss over some of what is held out says over how much of it.
TEST_F(Train, HeldOutLossSaysOverHowManySamples) {
  const auto run_with = [&](const std::string& batch) {
    return done({"train", "tiny.toml", "--output.dir=run" + batch, "--train.batch=" + batch, "--train.steps=2",
                 "--data.holdout=0.5"});
  };
  // Thirty-two batches are looked at.
  const Finished few = run_with("1");
  const nlohmann::json line = metrics("run1").back();
  EXPECT_EQ(line.at("eval_samples"), 32);
  const auto all = line.at("held_out_samples").get<std::int64_t>();
  ASSERT_GT(all, 32);
  ASSERT_LT(all, 1000) << "written with commas";
  const std::string part = fmt::format("32 of {} samples", all);
  expect_part(few.out, "over " + part);
  expect_part(few.err, "(" + part + ")");
  expect_part(read("run1/log.txt"), part);
  expect_part(run_with("64").out, fmt::format("over all {} samples", all));
  EXPECT_EQ(metrics("run64").back().at("eval_samples"), all);
  expect_part(done({"eval", "--from=run1", "--batches=1", "--data.holdout=0.5"}).out,
              fmt::format("(8 of {} samples)", all));
}

// Held-out rows that fill no batch are evaluated all the same, and the number does not depend on how they are cut.
TEST_F(Train, EvaluationCoversFewRows) {
  write("eval.txt", std::string(120, 'x') + "the keel of the trireme meets the wind");
  for (const char* micro : {"1", "3", "6"})
    done({"train", "tiny.toml", std::string("--output.dir=run") + micro, "--train.batch=6", "--data.eval=eval.txt",
          std::string("--train.micro_batch=") + micro, "--train.eps=1e-4"});
  const double one = metrics("run1").back().at("eval_loss");
  EXPECT_NEAR(metrics("run3").back().at("eval_loss").get<double>(), one, 1e-4 * one);
  EXPECT_NEAR(metrics("run6").back().at("eval_loss").get<double>(), one, 1e-4 * one);
}

TEST_F(Train, NoStepsLeaveTheStartAsACheckpoint) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=0"});
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(0)});
}

TEST_F(Train, TraceIsWritten) {
  done({"train", "tiny.toml", "--output.dir=run", "--runtime.trace=trace.json", "--train.steps=2"});
  const nlohmann::json trace = nlohmann::json::parse(read("trace.json"), nullptr, false);
  ASSERT_FALSE(trace.is_discarded());
  EXPECT_GT((trace.is_array() ? trace : trace["traceEvents"]).size(), 10U);
}

TEST_F(Train, TokenFiles) {
  std::string tokens;
  for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>(i * i % 50), '\0'};
  write("tokens.bin", tokens);
  done({"train", "tiny.toml", "--data.text=", "--data.tokens=tokens.bin", "--model.vocab=64", "--data.order=sequential",
        "--output.dir=run"});
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(kSteps));
}

}  // namespace
}  // namespace trireme::testing
