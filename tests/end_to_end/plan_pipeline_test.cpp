// What a plan says of a pipeline: where it is cut, and the schedule that was read from a file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class PipelinePlan : public Program {
 protected:
  const std::vector<std::string> settings_ = {"--parallel.mesh=pp=2", "--model.layers=5", "--train.batch=16"};

  std::vector<std::string> with(std::vector<std::string> command, const std::vector<std::string>& more = {}) const {
    command.insert(command.end(), settings_.begin(), settings_.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // Without what the plan says.
  std::vector<std::string> under(const std::string& plan, std::vector<std::string> command) const {
    command.insert(command.end(), {"--plan=" + plan, "--model.layers=5", "--train.batch=16"});
    return command;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in:\n" << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }
  // The one value of `stage_cuts`.
  static std::string cut_of(const std::string& plan) {
    const std::string before = "stage_cuts = [\n  \"";
    const std::size_t at = plan.find(before);
    EXPECT_NE(at, std::string::npos) << plan;
    if (at == std::string::npos) return {};
    const std::size_t begin = at + before.size();
    return plan.substr(begin, plan.find('"', begin) - begin);
  }
};

TEST_F(PipelinePlan, SaysWhereItIsCut) {
  done(with({"train", "tiny.toml", "--output.dir=planned"}));
  const std::string plan = read("planned/plan.toml");
  EXPECT_EQ(plan.find("micro_batch = 0"), std::string::npos) << plan;
  done(under("planned/plan.toml", {"train", "tiny.toml", "--output.dir=followed"}));
  EXPECT_EQ(read("followed/plan.toml"), plan);
  EXPECT_EQ(state("followed", kSteps), state("planned", kSteps));
  const auto programs = [&](const std::string& file) {
    return done(under(file, {"inspect", "program", "tiny.toml", "--rank=1"})).out;
  };
  EXPECT_EQ(programs("planned/plan.toml"), done(with({"inspect", "program", "tiny.toml", "--rank=1"})).out);
  // Another cut: the second stage has all that follows it, and the run learns the same.
  const std::string cut = cut_of(plan);
  write("edited.toml", replaced(plan, "\"" + cut + "\"", "\"blocks.1.ln1.layer_norm\""));
  EXPECT_NE(programs("edited.toml").find("blocks.1.ln1.layer_norm"), std::string::npos);
  EXPECT_EQ(programs("planned/plan.toml").find("blocks.1.ln1.layer_norm"), std::string::npos);
  done(under("edited.toml", {"train", "tiny.toml", "--output.dir=edited"}));
  EXPECT_EQ(cut_of(read("edited/plan.toml")), "blocks.1.ln1.layer_norm");
  EXPECT_NEAR(metrics("edited").back()["loss"].get<double>(), metrics("planned").back()["loss"].get<double>(), 1e-5);
  // `memory` knows it too.
  const auto peaks = [&](const std::string& file) {
    return done(under(file, {"memory", "tiny.toml", "--brief", "--json"})).out;
  };
  EXPECT_NE(peaks("edited.toml"), peaks("planned/plan.toml"));
}

TEST_F(PipelinePlan, AWrongCutIsRefusedByName) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}));
  const std::string plan = read("plan.toml");
  const std::string cut = cut_of(plan);
  const auto says = [&](const std::string& text) {
    write("edited.toml", text);
    return refused(under("edited.toml", {"train", "tiny.toml", "--output.dir=run"}));
  };
  const auto cut_at = [&](const std::string& value) {
    return says(replaced(plan, "\"" + cut + "\"", "\"" + value + "\""));
  };
  EXPECT_NE(cut_at("blocks.1.ln1.layer_nor")
                .find("a part of the pipeline cannot begin with 'blocks.1.ln1.layer_nor': the model has no such value; "
                      "the nearest that can is 'blocks.1.ln1.layer_norm'"),
            std::string::npos);
  // The file, the key, and cuts that would do, whatever was written.
  for (const char* wrong : {"blocks.1.ln1.layer_nor", "nonsense", "blocks.1.attn.qkv.matmul"}) {
    const std::string error = cut_at(wrong);
    EXPECT_NE(error.find("error: edited.toml: decisions.stage_cuts: "), std::string::npos) << error;
    const std::size_t at = error.find("the nearest is stage_cuts = [");
    ASSERT_NE(at, std::string::npos) << error;
    write("mended.toml", plan.substr(0, plan.find("stage_cuts = [")) + error.substr(at + 15) +
                             plan.substr(plan.find("]\n", plan.find("stage_cuts = [")) + 1));
    done(under("mended.toml", {"memory", "tiny.toml", "--brief"}));
  }
  // The residual stream passes around it.
  EXPECT_NE(cut_at("blocks.1.attn.qkv.matmul").find("more than one tensor goes on from what is before it"),
            std::string::npos);
  EXPECT_NE(says(replaced(plan, "\"" + cut + "\"", "\"blocks.1.ln1.layer_norm\", \"blocks.2.ln1.layer_norm\""))
                .find("has 2 parts, and 2"),
            std::string::npos);
  EXPECT_NE(says(replaced(plan, "stages = []", "stages = [1, 4]")).find("decisions.stage_cuts = " + cut),
            std::string::npos);
  EXPECT_NE(says(replaced(plan, "stage_cuts =", "stage_cut =")).find("did you mean decisions.stage_cuts?"),
            std::string::npos);
  const std::size_t begin = plan.find("stage_cuts = [");
  EXPECT_NE(says(plan.substr(0, begin) + plan.substr(plan.find("]\n", begin) + 2))
                .find("does not list where its pipeline is cut"),
            std::string::npos);
}

TEST_F(PipelinePlan, KeepsTheScheduleOfAFile) {
  const std::string first = "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n";
  const std::string other = "F0 F1 B0 B1 U\nF0 F1 B0 B1 U\n";
  write("s.txt", first);
  const std::vector<std::string> more = {"--train.micro_batch=8", "--parallel.pipeline=file:s.txt"};
  done(with({"train", "tiny.toml", "--output.dir=run"}, more));
  const std::string plan = read("run/plan.toml");
  EXPECT_NE(plan.find("schedule = [\n  \"F0 F1 B0 B1 U\",\n  \"F0 B0 F1 B1 U\"\n]\n"), std::string::npos) << plan;
  // A file that has changed is noticed, and the run stays as it is.
  write("s.txt", other);
  const std::string next = "--train.steps=" + std::to_string(kSteps + 1);
  EXPECT_NE(
      refused({"train", "run", "--resume", next})
          .find("parallel.pipeline = \"file:s.txt\" has changed since the plan was made: line 2 of the schedule is "
                "'F0 F1 B0 B1 U' there, and 'F0 B0 F1 B1 U' in run/plan.toml"),
      std::string::npos);
  EXPECT_NE(refused(under("run/plan.toml", {"train", "tiny.toml", "--output.dir=again"})).find("has changed since"),
            std::string::npos);
  // Without the file the plan is enough; a file of another name is another schedule.
  std::filesystem::remove(folder() / "s.txt");
  done({"train", "run", "--resume", next});
  EXPECT_EQ(read("run/plan.toml"), plan);
  write("t.txt", other);
  done({"train", "run", "--resume", "--parallel.pipeline=file:t.txt", "--train.steps=" + std::to_string(kSteps + 2)});
  EXPECT_NE(read("run/plan.toml").find("\"F0 F1 B0 B1 U\",\n  \"F0 F1 B0 B1 U\""), std::string::npos);
}

// One that holds one micro-batch between others that hold many.
TEST_F(PipelinePlan, StagesNeverWaitForEachOtherForEverWhateverTheyHold) {
  const std::vector<std::string> asked = {"--model.layers=6", "--train.batch=16", "--train.micro_batch=2",
                                          "--parallel.mesh=pp=6", "--parallel.pipeline=zero-bubble:auto"};
  std::vector<std::string> words = {"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"};
  words.insert(words.end(), asked.begin(), asked.end());
  done(words);
  for (const char* held : {"[6, 1, 2, 4, 5, 5]", "[8, 1, 8, 1, 8, 1]"}) {
    write("edited.toml",
          replaced(read("plan.toml"), "\n[decisions]\n", fmt::format("\n[decisions]\nheld = {}\n", held)));
    done({"train", "tiny.toml", "--plan=edited.toml", "--model.layers=6", "--train.batch=16", "--dry-run"});
  }
}

// The second stage is the fuller one: what checkpoints are staged in is what is left there.
TEST_F(PipelinePlan, StagingGivesWayToTheFullestStage) {
  const Finished f =
      done({"memory", "tiny.toml", "--brief", "--model.layers=3", "--model.vocab=20000", "--model.tie_embeddings=false",
            "--parallel.mesh=pp=2", "--parallel.stages=[1,2]", "--train.batch=8", "--memory.limit=11MiB"});
  EXPECT_EQ(f.out.find("would not run here"), std::string::npos) << f.out;
}

// A dry run says what is missing; ranks are no exception.
TEST_F(PipelinePlan, ADryRunRefusesNothingForTheNumberOfRanks) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
  for (const char* mesh : {"dp=4", "dp=1,tp=2,pp=4"}) {
    const Finished f =
        Running(folder(),
                {"train", "tiny.toml", std::string("--parallel.mesh=") + mesh, "--dry-run", "--model.layers=5"}, 2)
            .wait();
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.out.find("would not run here: parallel.mesh = "), std::string::npos) << f.out;
    EXPECT_NE(f.out.find("and 2 were launched"), std::string::npos) << f.out;
  }
}

}  // namespace
}  // namespace trireme::testing
