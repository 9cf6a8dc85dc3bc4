// `trireme inspect schedule`, and the pictures of the documentation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "end_to_end/listings.h"
#include "end_to_end/program.h"
#include "support/source_dir.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

using Schedules = Program;

std::vector<std::string> request(const std::string& pipeline, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"inspect", "schedule", "--stages=4", "--micro-batches=8", "--pipeline=" + pipeline};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(Schedules, JsonForScripts) {
  const nlohmann::json plain = nlohmann::json::parse(done(request("1f1b", {"--json"})).out);
  ASSERT_EQ(plain["stages"].size(), 4U);
  EXPECT_EQ(plain["stages"][3], "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 U");
  EXPECT_DOUBLE_EQ(plain["bubble"].get<double>(), 3.0 / 11);
  EXPECT_EQ(plain["held"], nlohmann::json({4, 3, 2, 1}));
  EXPECT_FALSE(plain.contains("fill"));

  const nlohmann::json stashed = nlohmann::json::parse(done(request("pipedream", {"--json"})).out);
  EXPECT_EQ(stashed["bubble"], 0.0);
  EXPECT_EQ(stashed["weight_versions"], nlohmann::json({4, 3, 2, 1}));
  EXPECT_EQ(stashed["drain"], nlohmann::json({"B5 U B6 U B7 U", "B6 U B7 U", "B7 U", ""}));

  const nlohmann::json limited =
      nlohmann::json::parse(done(request("zero-bubble:auto", {"--json", "--max-held=2,2,2,1"})).out);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_LE(limited["held"][i], i == 3 ? 1 : 2);
}

// A file says how many stages and micro-batches it has.
TEST_F(Schedules, AFileNeedsNoNumbers) {
  write("two.txt", "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  const std::string title = "file:two.txt: 2 stages, 2 micro-batches\n";
  expect_part(done({"inspect", "schedule", "--pipeline=file:two.txt"}).out, title);
  expect_part(done({"inspect", "schedule", "tiny.toml", "--pipeline=file:two.txt"}).out, title);
  expect_part(refused({"inspect", "schedule", "--pipeline=file:two.txt", "--stages=3"}), "it has 2 stages");
  expect_part(refused({"inspect", "schedule"}), "--stages is missing");
}

TEST_F(Schedules, PicturesAreTextAndSvg) {
  const std::string text = done(request("interleaved:2", {"--svg=out.svg", "--width=60"})).out;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("2 chunks per stage"), std::string::npos);
  const std::string svg = read("out.svg");
  EXPECT_NE(svg.find("<title>F7.1: "), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  // Costs are drawn and counted: eight times 1 + 2 + 1, and three stages before the last.
  EXPECT_NE(done(request("gpipe", {"--costs=1,2,1"})).out.find("the step takes 44"), std::string::npos);
}

// What the arguments leave open is the configuration's.
TEST_F(Schedules, ConfigurationsAndFiles) {
  const std::vector<std::string> words = {
      "inspect", "schedule", "tiny.toml", "--train.batch=8", "--train.micro_batch=2", "--pipeline=gpipe", "--stages=2"};
  EXPECT_TRUE(done(words).out.starts_with("gpipe: 2 stages, 4 micro-batches\n"));
  write("own.txt", "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  const auto own = [](const char* micro_batches) {
    return std::vector<std::string>{"inspect", "schedule", "--stages=2", micro_batches, "--pipeline=file:own.txt"};
  };
  EXPECT_NE(done(own("--micro-batches=2")).out.find("stage 1  ·· F0 B0━━━ F1 B1━━━"), std::string::npos);
  EXPECT_NE(refused(own("--micro-batches=3")).find("own.txt: it has 2 stages and 2 micro-batches"), std::string::npos);
  write("own.txt", "F0 F1 B0 B1 U\nF0 B0 B1 F1 U\n");
  EXPECT_NE(refused(own("--micro-batches=2")).find("own.txt: stage 1 (line 2): B1 comes before F1"), std::string::npos);
}

// A run keeps its schedule in its plan, and is shown by it once the file is gone.
TEST_F(Schedules, OfARunWhoseFileIsGone) {
  write("own.txt", "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1", "--train.batch=4", "--train.micro_batch=2",
        "--model.layers=2", "--parallel.mesh=pp=2", "--parallel.pipeline=file:own.txt"});
  const std::string before = done({"inspect", "schedule", "run"}).out;
  const std::string memory = done({"memory", "run", "--brief"}).out;
  std::filesystem::remove(folder() / "own.txt");
  EXPECT_EQ(done({"inspect", "schedule", "run"}).out, before);
  EXPECT_EQ(done({"memory", "run", "--brief"}).out, memory);
  expect_parts(refused({"inspect", "schedule", "run", "--pipeline=file:own.txt"}), {"own.txt: cannot be read"});
  // The picture of another schedule needs no file.
  done({"inspect", "schedule", "run", "--pipeline=gpipe"});
}

// How many micro-batches a batch is cut in goes by the stages, wherever their number is said.
TEST_F(Schedules, StagesMakeMicroBatchesAsInTheMesh) {
  const std::vector<std::string> words = {"inspect", "schedule", "tiny.toml", "--train.batch=8",
                                          "--train.micro_batch=0"};
  const auto with = [&](const char* stages) {
    std::vector<std::string> all = words;
    all.emplace_back(stages);
    return done(all).out;
  };
  expect_part(with("--stages=4"), "1f1b: 4 stages, 8 micro-batches\n");
  EXPECT_EQ(with("--stages=4"), with("--parallel.mesh=pp=4"));
}

// Whatever is in a file, a terminal takes no command from it.
TEST_F(Schedules, BytesThatAreNoTextAreShownAsSuch) {
  write("own.txt", "F0 \x1b[2J\x07\xff B0 U\n");
  expect_part(refused({"inspect", "schedule", "--pipeline=file:own.txt"}), "own.txt: line 1: '·[2J··' is no action");
}

// Running statistics are those after the last micro-batch.
TEST_F(Schedules, StatisticsWantTheMicroBatchesInOrder) {
  write("own.txt", "F0 F2 F1 B0 B2 B1 U\nF0 F2 F1 B0 B2 B1 U\n");
  const std::string error =
      refused({"train", "--dry-run", "--model.family=convnet", "--data.images=synthetic", "--model.width=8",
               "--model.image=16", "--model.layers=4", "--train.batch=12", "--train.micro_batch=4",
               "--parallel.mesh=pp=2", "--parallel.pipeline=file:own.txt"});
  expect_part(error, "parallel.pipeline = \"file:own.txt\": stage 0: F2 would write state '");
  expect_part(error, "running statistics, wants the micro-batches in their order; the nearest is \"1f1b\"");
}

// The bytes of each stage are those that the same run plans; without a model there are none.
TEST_F(Schedules, AConfigurationHasBytesForEachStage) {
  const std::vector<std::string> keys = {"--parallel.mesh=pp=2", "--model.layers=4", "--train.batch=16",
                                         "--train.micro_batch=2", "--parallel.pipeline=gpipe"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), keys.begin(), keys.end());
    return done(words).out;
  };
  const nlohmann::json planned = nlohmann::json::parse(with({"memory", "tiny.toml", "--brief", "--json"}));
  const nlohmann::json shown = nlohmann::json::parse(with({"inspect", "schedule", "tiny.toml", "--json"}));
  ASSERT_EQ(shown["memory_bytes"].size(), 2U);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(shown["memory_bytes"][stage], planned["ranks"][stage]["predicted_peak_bytes"]);
    EXPECT_GT(shown["activation_bytes"][stage], 0);
    EXPECT_LT(shown["activation_bytes"][stage], shown["memory_bytes"][stage]);
  }
  // Arguments come before the configuration's: with one micro-batch at a time less is saved than with all of them.
  const nlohmann::json fewer =
      nlohmann::json::parse(with({"inspect", "schedule", "tiny.toml", "--json", "--pipeline=sequential"}));
  EXPECT_LT(fewer["activation_bytes"][0], shown["activation_bytes"][0]);
  const std::string text = with({"inspect", "schedule", "tiny.toml"});
  expect_part(text, "\nmemory    ");
  expect_part(text, " on a rank, by stage; of it activations ");
  expect_part(with({"inspect", "schedule", "tiny.toml", "--micro-batches=3"}), "memory    not planned: ");
  expect_none(done(request("gpipe")).out, "memory");
  EXPECT_FALSE(nlohmann::json::parse(done(request("gpipe", {"--json"})).out).contains("memory_bytes"));
}

// Under a limit zero-bubble:auto holds fewer micro-batches; what is drawn is what runs.
TEST_F(Schedules, UnderALimitTheScheduleIsTheRunsOwn) {
  const std::vector<std::string> keys = {"--parallel.mesh=pp=2", "--model.layers=4", "--train.batch=16",
                                         "--train.micro_batch=2", "--parallel.pipeline=zero-bubble:auto"};
  const auto with = [&](std::vector<std::string> words, const std::string& limit) {
    words.insert(words.end(), keys.begin(), keys.end());
    if (!limit.empty()) words.push_back("--memory.limit=" + limit);
    return done(words);
  };
  const auto shown = [&](const std::string& limit) {
    return nlohmann::json::parse(with({"inspect", "schedule", "tiny.toml", "--json"}, limit).out);
  };
  const nlohmann::json any = shown("");
  const auto most = *std::max_element(any["memory_bytes"].begin(), any["memory_bytes"].end());
  std::string limit;
  nlohmann::json limited = any;
  for (std::size_t tenths = 9; tenths > 4 && limited["held"] == any["held"]; --tenths) {
    limit = std::to_string(most.get<std::size_t>() * tenths / 10);
    limited = shown(limit);
  }
  EXPECT_LT(limited["held"][0], any["held"][0]);
  const std::string run = with({"train", "tiny.toml", "--dry-run"}, limit).out;
  for (const auto& held : limited["held"])
    expect_part(run, fmt::format(" · holds {} micro-batch{} · ", held.get<int>(), held.get<int>() == 1 ? "" : "es"));
}

// Typed as it is printed, a launch line means the same.
TEST_F(Schedules, TheLaunchLineIsQuotedForAShell) {
  expect_part(done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2", "--model.layers=4", "--train.batch=16",
                    "--parallel.stages=[1,3]", "--output.dir=my run's"})
                  .out,
              "train tiny.toml --parallel.mesh=pp=2 --model.layers=4 --train.batch=16 '--parallel.stages=[1,3]' "
              "'--output.dir=my run'\\''s'\n");
}

TEST_F(Schedules, TheDocumentationShowsWhatTheCommandPrints) {
  const std::vector<Listing> all = listings("pipelines.md");
  EXPECT_GE(all.size(), 8U);
  for (const Listing& listing : all) EXPECT_EQ(done(listing.arguments).out, listing.output) << listing.arguments.back();
}

TEST_F(Schedules, TheDryRunOfAPipelineShowsItsStagesAndHowToStartIt) {
  const Finished f = done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2,dp=2", "--model.layers=4",
                           "--train.batch=16", "--train.micro_batch=2"});
  for (const char* part : {"stages  1f1b: ", " · holds 2 micro-batches · ", " · holds 1 micro-batch · ",
                           "stage 0  F0 F1 ", "ranks   rank = 2·pp + dp\n", "launch  mpirun -n 4 ",
                           "srun --ntasks=4 --ntasks-per-node=4 ", " on each rank of stage 0, the fullest ("})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << "\n" << f.out;
  EXPECT_EQ(f.out.find("--dry-run\n"), std::string::npos) << f.out;
  const std::string memory =
      done({"memory", "tiny.toml", "--brief", "--parallel.mesh=pp=2,dp=2", "--train.batch=16", "--train.micro_batch=2"})
          .out;
  for (const char* part : {"\nrole ", "\nstage 0           2 ", "\nstage 1           2 "})
    EXPECT_NE(memory.find(part), std::string::npos) << part << "\n" << memory;
}

// Servers are tasks too: where one node may have them all, it does.
TEST_F(Schedules, TheDryRunOfServersCountsTheirTasks) {
  expect_part(done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2", "--parallel.server=ssp:2"}).out,
              "srun --ntasks=3 --ntasks-per-node=3 ");
  expect_part(done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2", "--parallel.server=sync"}).out,
              "srun --ntasks=3 --ntasks-per-node=3 ");
}

TEST_F(Schedules, AsynchronousPipelinesAreDrawnAndTrain) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(pipeline);
    const std::vector<std::string> how = {"train",
                                          "tiny.toml",
                                          "--parallel.mesh=pp=2",
                                          "--model.layers=2",
                                          "--model.family=llama",
                                          "--train.batch=8",
                                          "--train.micro_batch=2",
                                          fmt::format("--parallel.pipeline={}", pipeline)};
    std::vector<std::string> dry = how;
    dry.push_back("--dry-run");
    const std::string shown = done(dry).out;
    EXPECT_NE(shown.find(fmt::format("stages  {}: ", pipeline)), std::string::npos) << shown;
    EXPECT_NE(shown.find("stage 0  F0 F1 "), std::string::npos) << shown;
    const Finished f = done(how);
    EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
  }
}

TEST_F(Schedules, APipelineThatMostlyWaitsIsAnnounced) {
  const std::vector<std::string> few = {"train",
                                        "tiny.toml",
                                        "--dry-run",
                                        "--parallel.mesh=pp=3",
                                        "--train.batch=8",
                                        "--model.layers=3",
                                        "--train.micro_batch=4"};
  EXPECT_NE(done(few).err.find("warning: 2 micro-batches for 3 stages leave most of them idle; train.micro_batch = 1 "
                               "would make 8"),
            std::string::npos);
  const std::vector<std::string> uneven = {"train",
                                           "tiny.toml",
                                           "--dry-run",
                                           "--parallel.mesh=pp=3",
                                           "--train.batch=8",
                                           "--model.layers=12",
                                           "--parallel.stages=[10,1,1]"};
  const std::string said = done(uneven).err;
  EXPECT_NE(said.find("warning: stage 0 takes "), std::string::npos) << said;
  EXPECT_NE(said.find("parallel.stages = [] balances them"), std::string::npos) << said;
}

}  // namespace
}  // namespace trireme::testing
