// A plan as a person uses it: written, read back, edited, contradicted, and given to another model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Plan : public Program {
 protected:
  // What decides something: some values are recomputed.
  const std::vector<std::string> settings_ = {"--parallel.mesh=dp=2", "--parallel.zero=1", "--memory.remat=full",
                                              "--output.staging=64KiB", "--train.batch=16"};

  std::vector<std::string> with(std::vector<std::string> command, const std::vector<std::string>& more) const {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in:\n" << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }
};

TEST_F(Plan, ReadBackGivesTheSameRun) {
  done(with({"train", "tiny.toml", "--output.dir=planned"}, settings_));
  ASSERT_TRUE(exists("planned/plan.toml"));
  const std::string plan = read("planned/plan.toml");
  EXPECT_NE(plan.find("mesh = \"dp=2\""), std::string::npos) << plan;
  EXPECT_NE(plan.find("recompute = [\n"), std::string::npos) << plan;
  done({"train", "tiny.toml", "--output.dir=followed", "--plan=planned/plan.toml", "--train.batch=16"});
  EXPECT_EQ(read("followed/plan.toml"), plan);
  EXPECT_EQ(state("followed", kSteps), state("planned", kSteps));
  const auto a = metrics("planned");
  const auto b = metrics("followed");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]["loss"], b[i]["loss"]);
    EXPECT_EQ(a[i]["peak_bytes"], b[i]["peak_bytes"]);
  }
}

// A plan has the annotations that a model is sharded by.
TEST_F(Plan, HasShardings) {
  const std::vector<std::string> sharded = {"--parallel.mesh=tp=2", "--parallel.sharding.*.mlp.up.weight=out:tp",
                                            "--parallel.sharding.wte.weight=vocab:tp"};
  done(with({"train", "tiny.toml", "--output.dir=planned"}, sharded));
  const std::string plan = read("planned/plan.toml");
  EXPECT_NE(plan.find("[parallel.sharding]\n\"*.mlp.up.weight\" = \"out:tp\"\n"), std::string::npos) << plan;
  done({"train", "tiny.toml", "--output.dir=followed", "--plan=planned/plan.toml"});
  EXPECT_EQ(read("followed/plan.toml"), plan);
  EXPECT_EQ(metrics("followed").back()["loss"], metrics("planned").back()["loss"]);
}

TEST_F(Plan, IsWhatMemoryPrints) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  EXPECT_EQ(done(with({"memory", "tiny.toml", "--plan-out=-"}, settings_)).out, read("plan.toml"));
}

TEST_F(Plan, EditedDecisionsAreFollowed) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const std::size_t begin = text.find("recompute = [");
  const std::size_t end = text.find("]\n", begin);
  write("none.toml", text.substr(0, begin) + "recompute = []\n" + text.substr(end + 2));
  done({"train", "tiny.toml", "--output.dir=all", "--plan=plan.toml", "--train.batch=16"});
  done({"train", "tiny.toml", "--output.dir=none", "--plan=none.toml", "--train.batch=16"});
  EXPECT_GT(metrics("none").back()["peak_bytes"], metrics("all").back()["peak_bytes"]);
  EXPECT_EQ(state("none", kSteps), state("all", kSteps));
}

// Of the defaults too: nothing in it is left to the machine that reads it.
TEST_F(Plan, SaysWhatAutoHasComeTo) {
  done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml", "--memory.offload=optimizer"});
  const std::string text = read("plan.toml");
  for (const char* line :
       {"mesh = \"dp=1\"\n", "device = \"cpu\"\n", "offload_tier = \"disk\"\n", "allreduce = \"auto\"  # a fixed rule"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  for (const char* line : {"threads = 0\n", "staging = \"auto\"\n", "overlap_wgrad = \"auto\"\n"})
    EXPECT_EQ(text.find(line), std::string::npos) << line << text;
  done({"train", "tiny.toml", "--plan=plan.toml", "--output.dir=run"});
  EXPECT_EQ(read("run/plan.toml"), text);
}

TEST_F(Plan, KeysThatContradictItsDecisionsAreRefused) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const auto says = [&](const std::string& plan) {
    write("edited.toml", plan);
    return refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"});
  };
  EXPECT_NE(says(replaced(text, "remat = \"full\"", "remat = \"none\"")).find("decisions.recompute"),
            std::string::npos);
  const std::size_t begin = text.find("recompute = [");
  const std::size_t end = text.find("]\n", begin);
  EXPECT_NE(says(text.substr(0, begin) + text.substr(end + 2)).find("does not list what is recomputed"),
            std::string::npos);
  EXPECT_NE(says(text + "offload_states = [\"w\"]\n").find("memory.offload = \"none\""), std::string::npos);
}

TEST_F(Plan, AResumedRunFollowsItsOwn) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const std::size_t begin = text.find("recompute = [");
  const std::size_t end = text.find("]\n", begin);
  write("edited.toml", text.substr(0, begin) + "recompute = []\n" + text.substr(end + 2));
  done({"train", "tiny.toml", "--output.dir=run", "--plan=edited.toml", "--train.batch=16"});
  const std::string plan = read("run/plan.toml");
  const auto peak = metrics("run").back()["peak_bytes"];
  const std::string more = "--train.steps=" + std::to_string(kSteps + 1);
  done({"train", "run", "--resume", more});
  EXPECT_EQ(read("run/plan.toml"), plan);
  EXPECT_EQ(metrics("run").back()["peak_bytes"], peak);
  // However it was edited: by another editor, or to something else.
  const std::size_t line = plan.find('\n') + 1;
  write("run/plan.toml", plan.substr(line));
  done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 2)});
  EXPECT_EQ(metrics("run").back()["peak_bytes"], peak);
  write("run/plan.toml", "garbage\n");
  EXPECT_NE(refused({"train", "run", "--resume", "--train.steps=99"}).find("plan.toml:1"), std::string::npos);
  EXPECT_EQ(read("run/plan.toml"), "garbage\n");
  write("run/plan.toml", plan);
  const std::string most = "--train.steps=" + std::to_string(kSteps + 3);
  const Finished changed = done({"train", "run", "--resume", most, "--memory.remat=none"});
  EXPECT_NE(changed.err.find("the plan is made anew: memory.remat was \"full\" and is \"none\""), std::string::npos)
      << changed.err;
}

// What a person wrote is not replaced: the file is named, what is wrong with it, and what to do.
TEST_F(Plan, AGarbledOneOfARunSaysHowToGoOn) {
  done(with({"train", "tiny.toml", "--output.dir=run"}, settings_));
  const std::string plan = read("run/plan.toml");
  const std::vector<std::string> further = {"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 1)};
  for (const std::string& text : {std::string("garbage\n"), plan.substr(0, plan.size() / 2), std::string()}) {
    write("run/plan.toml", text);
    const std::string error = refused(further);
    expect_parts(error, {"the run's plan cannot be read: run/plan.toml:",
                         "mend run/plan.toml, or remove it: then the plan is made anew from run/config.toml"});
    EXPECT_EQ(read("run/plan.toml"), text);
  }
  std::filesystem::remove(folder() / "run/plan.toml");
  done(further);
  EXPECT_EQ(read("run/plan.toml"), plan);
}

TEST_F(Plan, KeysThatOneOfARunLacksAreNamed) {
  done(with({"train", "tiny.toml", "--output.dir=run"}, settings_));
  const std::string plan = read("run/plan.toml");
  write("run/plan.toml", replaced(replaced(plan, "async_tp = false\n", ""), "bucket = \"25MiB\"\n", ""));
  const Finished f = done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 1)});
  expect_part(f.err,
              "run/plan.toml does not name parallel.async_tp, parallel.bucket: they are taken as in the run's "
              "config.toml, and written to it");
  EXPECT_EQ(read("run/plan.toml"), plan);
  const Finished whole = done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 2)});
  expect_none(whole.err, "does not name");
}

TEST_F(Plan, TwoStagingsContradictEachOther) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  write("edited.toml", replaced(text, "staging = \"64KiB\"", "staging = \"1MiB\""));
  expect_parts(refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"}),
               {"error: edited.toml:", ": decisions.staging = 65536 and output.staging = \"1048576B\" contradict"});
  // Either way out.
  write("edited.toml", replaced(replaced(text, "staging = \"64KiB\"", "staging = \"1MiB\""), "staging = 65536\n", ""));
  done({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16", "--output.dir=one"});
  // What is no whole number of blocks is not two.
  done({"memory", "tiny.toml", "--brief", "--plan-out=odd.toml", "--output.staging=100001"});
  done({"train", "tiny.toml", "--plan=odd.toml", "--output.dir=odd"});
}

TEST_F(Plan, WrongNamesOfValuesHaveTheirNearestAndTheFile) {
  const std::vector<std::string> more = {"--memory.remat=full", "--memory.offload=all", "--memory.offload_policy=all"};
  for (const std::string mesh : {"dp=1", "pp=2"}) {
    const std::string given = "--parallel.mesh=" + mesh;
    done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml", "--model.layers=4", given}, more));
    const std::string text = read("plan.toml");
    const auto says = [&](const std::string& from, const std::string& to) {
      write("edited.toml", replaced(text, from, to));
      return refused({"train", "tiny.toml", "--plan=edited.toml", "--model.layers=4"});
    };
    expect_parts(says("\"blocks.0.mlp.up.matmul\"", "\"blocks.0.mpl.up.matmul\""),
                 {"error: edited.toml: 'blocks.0.mpl.up.matmul' is to be recomputed",
                  "the nearest is 'blocks.0.mlp.up.matmul'"});
    expect_parts(says("offload_states = []", "offload_states = [\"blocks.0.mpl.up.weight\"]"),
                 {"error: edited.toml: 'blocks.0.mpl.up.weight' is to be offloaded, and there is no such state",
                  "the nearest is 'blocks.0.mlp.up.weight'"});
  }
}

// What would fit is no key to give: the plan fixes them all.
TEST_F(Plan, ItsLimitProposesWhatItAllows) {
  done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml", "--train.batch=16"});
  write("edited.toml", replaced(read("plan.toml"), "limit = \"\"", "limit = \"700001B\""));
  const std::string error = refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"});
  expect_parts(error, {"memory.limit = \"700001B\" is too small",
                       "edited.toml fixes these keys: make it anew with them", "or raise limit in its [memory]"});
  const std::size_t at = error.find(" with --") + 6;
  ASSERT_GT(at, 6U) << error;
  std::vector<std::string> anew = {
      "memory", "tiny.toml", "--brief", "--plan-out=anew.toml", "--train.batch=16", "--memory.limit=700001B"};
  std::istringstream words(error.substr(at, error.find(';', at) - at));
  for (std::string word; words >> word;)
    if (word.starts_with("--")) anew.push_back(word);
  done(anew);
  done({"train", "tiny.toml", "--plan=anew.toml", "--train.batch=16", "--output.dir=run"});
}

// One that is for another model: made by an earlier version, or copied from another run.
TEST_F(Plan, AResumedRunSaysThatItsPlanIsForAnotherModel) {
  done(with({"train", "tiny.toml", "--output.dir=run"}, settings_));
  const std::string plan = read("run/plan.toml");
  const std::size_t at = plan.find("model = \"") + 9;
  write("run/plan.toml", plan.substr(0, at) + "0123456789abcdef" + plan.substr(at + 16));
  const Finished f = done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 1)});
  EXPECT_NE(f.err.find("the plan is made anew: run/plan.toml is for another model"), std::string::npos) << f.err;
  EXPECT_EQ(read("run/plan.toml"), plan);
}

// A key that is left out is not silently whatever the reader's default is.
TEST_F(Plan, NamesEveryKey) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const auto without = [&](const std::string& line) {
    const std::size_t at = text.find("\n" + line) + 1;
    EXPECT_NE(at, 0U) << line;
    write("edited.toml", text.substr(0, at) + text.substr(text.find('\n', at) + 1));
    return refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"});
  };
  EXPECT_NE(without("zero = ").find("edited.toml: parallel.zero is missing"), std::string::npos);
  EXPECT_NE(without("allreduce = ").find("edited.toml: parallel.allreduce is missing"), std::string::npos);
  EXPECT_NE(without("micro_batch = ").find("edited.toml: train.micro_batch is missing"), std::string::npos);
  const std::string keys = text.substr(0, text.find("[decisions]"));
  write("edited.toml", keys + "[decisions]\nrecompute = []\n");
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"})
                .find("edited.toml: decisions.device is missing"),
            std::string::npos);
  // That of a run which is resumed may be older than a key: the run's configuration has it.
  done({"train", "tiny.toml", "--output.dir=run", "--plan=plan.toml", "--train.batch=16"});
  write("run/plan.toml", replaced(read("run/plan.toml"), "async_tp = false\n", ""));
  const Finished f = done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 1)});
  EXPECT_EQ(f.err.find("the plan is made anew"), std::string::npos) << f.err;
}

// What is wrong with a plan is said of the plan, with its line, and not of the configuration or the command line.
TEST_F(Plan, ItsErrorsNameIt) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const auto says = [&](const std::string& from, const std::string& to) {
    write("edited.toml", replaced(text, from, to));
    return refused({"train", "tiny.toml", "--plan=edited.toml", "--train.batch=16"});
  };
  const auto line_of = [&](const std::string& key) {
    return std::to_string(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(key)), '\n') +
                          1);
  };
  const auto expect = [](const std::string& error, const std::string& begin) {
    EXPECT_EQ(error.substr(0, begin.size()), begin) << error;
  };
  expect(says("zero = 1", "zero = 7"), "error: edited.toml:" + line_of("zero = 1") + ": parallel.zero must be");
  expect(says("bucket = \"25MiB\"", "bucket = \"25XB\""),
         "error: edited.toml:" + line_of("bucket = ") + ": parallel.bucket must be");
  expect(says("mesh = \"dp=2\"", "mesh = \"dp=banana\""),
         "error: edited.toml:" + line_of("mesh = ") + ": parallel.mesh");
  // Of values that do not go together.
  expect(says("micro_batch = 8", "micro_batch = 3"), "error: under the plan edited.toml: ");
  // What has nothing to do with it is not blamed on it.
  const std::string error = refused({"train", "tiny.toml", "--plan=plan.toml", "--train.batch=16", "--model.heads=3"});
  EXPECT_EQ(error.find("plan.toml"), std::string::npos) << error;
}

// A run folder that was written when keys had other names goes on without a word; a plan outside of one does not.
TEST_F(Plan, OldNamesInARunFolder) {
  done(with({"train", "tiny.toml", "--output.dir=run"}, settings_));
  const std::string config = read("run/config.toml");
  const std::string plan = read("run/plan.toml");
  const auto peak = metrics("run").back()["peak_bytes"];
  write("run/config.toml", replaced(config, "overlap_wgrad = \"auto\"", "weight_gradients = \"auto\""));
  const std::string old = replaced(plan, "overlap_wgrad = false", "weight_gradients = \"in_line\"");
  write("run/plan.toml", old);
  const Finished f = done({"train", "run", "--resume", "--train.steps=" + std::to_string(kSteps + 1)});
  EXPECT_EQ(f.err.find("plan"), std::string::npos) << f.err;
  EXPECT_EQ(f.err.find("weight_gradients"), std::string::npos) << f.err;
  EXPECT_EQ(metrics("run").back()["peak_bytes"], peak);
  EXPECT_EQ(read("run/plan.toml"), plan);
  write("run/config.toml", replaced(config, "overlap_wgrad = \"auto\"", "weight_gradients = \"beside\""));
  done({"generate", "--from=run", "--prompt=a", "--tokens=2"});
  done({"eval", "run", "--from=run"});
  done({"train", "tiny.toml", "--output.dir=other", "--plan=run", "--train.batch=16"});
  write("old.toml", old);
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=old.toml", "--train.batch=16"})
                .find("runtime.weight_gradients is now called runtime.overlap_wgrad"),
            std::string::npos);
}

TEST_F(Plan, WritesOverNothingButAPlan) {
  const std::string config = read("tiny.toml");
  EXPECT_NE(refused({"memory", "tiny.toml", "--brief", "--plan-out=tiny.toml"}).find("is no plan"), std::string::npos);
  EXPECT_EQ(read("tiny.toml"), config);
  done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"});
  done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"});
}

// A plan that exceeds its own limit is refused by train --plan: it is not written down.
TEST_F(Plan, ThatExceedsItsLimitIsNotWritten) {
  for (const char* out : {"--plan-out=plan.toml", "--plan-out=-"}) {
    const std::string error = refused({"memory", "tiny.toml", "--brief", "--memory.limit=1KiB", out});
    expect_part(error, "memory.limit = \"1KiB\" is too small");
    EXPECT_FALSE(exists("plan.toml"));
  }
  // Without a plan to write, what is short is shown.
  expect_part(done({"memory", "tiny.toml", "--brief", "--memory.limit=1KiB"}).out, "would not run here: memory.limit");
}

TEST_F(Plan, StagingIsBytesAboveZero) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const std::string text = read("plan.toml");
  const std::size_t at = text.find("\nstaging = ", text.find("[decisions]")) + 1;
  const std::string before = text.substr(0, at);
  write("none.toml", before + "staging = -1\n");
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=none.toml", "--train.batch=16"})
                .find("decisions.staging must be bytes above"),
            std::string::npos);
  write("little.toml", replaced(before, "staging = \"64KiB\"", "staging = \"1B\"") + "staging = 1\n");
  done({"train", "tiny.toml", "--plan=little.toml", "--train.batch=16", "--output.dir=run"});
  EXPECT_TRUE(exists("run/checkpoints/" + step_name(kSteps)));
}

// The value that contradicts is named, and not another that no longer goes with it.
TEST_F(Plan, ContradictionsNameBothSides) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  const auto says = [&](const std::vector<std::string>& more, const std::string& config = "tiny.toml") {
    return refused(with({"train", config, "--plan=plan.toml", "--train.batch=16"}, more));
  };
  EXPECT_EQ(says({"--parallel.mesh=dp=16"}),
            "error: --parallel.mesh=\"dp=16\" contradicts the plan plan.toml, which has \"dp=2\"; leave it out, or "
            "edit the plan");
  // A plan without annotations is not one for whichever annotations there are.
  EXPECT_EQ(says({"--parallel.sharding.wte.weight=vocab:tp"}),
            "error: --parallel.sharding.wte.weight=vocab:tp contradicts the plan plan.toml, which has no annotation of "
            "that pattern; leave it out, or edit the plan");
  write("annotated.toml", read("tiny.toml") + "\n[parallel.sharding]\n\"wte.weight\" = \"vocab:dp\"\n");
  EXPECT_EQ(says({}, "annotated.toml"),
            "error: annotated.toml: parallel.sharding has \"wte.weight\" = \"vocab:dp\", and the plan plan.toml has no "
            "annotation of that pattern; remove it, or add it to [parallel.sharding] of the plan");
  // Two plans.
  write("other.toml", read("plan.toml"));
  for (const char* other : {"other.toml", "auto"})
    EXPECT_EQ(says({fmt::format("--parallel.plan={}", other)}),
              fmt::format("error: --plan plan.toml and parallel.plan = \"{}\" contradict each other; leave one of them "
                          "out",
                          other));
  write("planned.toml", read("tiny.toml") + "\n[parallel]\nplan = \"other.toml\"\n");
  expect_part(says({}, "planned.toml"), "--plan plan.toml and parallel.plan = \"other.toml\" contradict each other");
  // One plan, named twice.
  done({"train", "tiny.toml", "--plan=plan.toml", "--parallel.plan=./plan.toml", "--train.batch=16"});
}

// What no state shows is part of a model: the scale of its rotations, say.
TEST_F(Plan, IsForOneModelWithItsAttributes) {
  const std::vector<std::string> llama = {"--model.family=llama", "--train.batch=16"};
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, llama));
  const auto other = with({"train", "tiny.toml", "--plan=plan.toml", "--model.rope_theta=77"}, llama);
  expect_part(refused(other), "plan.toml was made for another model, or by an earlier version");
}

// Which readers load an offloaded state again is a decision as any other. A plan from before it was listed follows the
// same rule as one without a plan.
TEST_F(Plan, ReloadsAreFollowed) {
  const std::vector<std::string> model = {"--model.layers=3", "--model.width=128", "--train.batch=16"};
  done(with(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, model), {"--memory.offload=weights"}));
  const std::string text = read("plan.toml");
  const std::size_t begin = text.find("offload_reloads = [\n  \"");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::size_t end = text.find("]\n", begin) + 2;
  write("older.toml", text.substr(0, begin) + text.substr(end));
  write("kept.toml", text.substr(0, begin) + "offload_reloads = []\n" + text.substr(end));
  const auto program = [&](const std::string& option) {
    return done(with({"inspect", "program", "tiny.toml", option}, model)).out;
  };
  const std::string planned = program("--plan=plan.toml");
  EXPECT_EQ(planned, program("--memory.offload=weights"));
  EXPECT_EQ(planned, program("--plan=older.toml"));
  const auto loads = [](const std::string& listing) {
    std::size_t count = 0;
    for (std::size_t at = listing.find(".load"); at != std::string::npos; at = listing.find(".load", at + 1)) ++count;
    return count;
  };
  EXPECT_LT(loads(program("--plan=kept.toml")), loads(planned));
  const std::size_t name = begin + std::string("offload_reloads = [\n  \"").size();
  write("wrong.toml", text.substr(0, name) + "nothing.weight before x\", \"" + text.substr(name));
  expect_part(refused(with({"train", "tiny.toml", "--plan=wrong.toml"}, model)),
              "'nothing.weight before x' names no state that is offloaded");
}

// In a pipeline the reader may be of any stage.
TEST_F(Plan, ReloadsBeforeWhatNobodyMakesAreRefused) {
  const std::vector<std::string> model = {"--model.layers=4", "--model.width=128", "--train.batch=16"};
  for (const std::string mesh : {"dp=1", "pp=2"}) {
    SCOPED_TRACE(mesh);
    done(with(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, model),
              {"--memory.offload=weights", "--parallel.mesh=" + mesh}));
    const std::string text = read("plan.toml"), key = "offload_reloads = [";
    const std::size_t begin = text.find(key);
    ASSERT_NE(begin, std::string::npos) << text;
    const auto with_reload = [&](const std::string& name) {
      write("edited.toml", text.substr(0, begin) + key + '"' + name + '"' + text.substr(text.find(']', begin)));
      return with({"train", "tiny.toml", "--plan=edited.toml", "--dry-run"}, model);
    };
    for (const std::string state : {"blocks.0.mlp.up.weight", "blocks.3.mlp.up.weight"}) {
      const std::string wrong = state + " before " + state.substr(0, state.rfind('.')) + ".matmull";
      const std::string error = refused(with_reload(wrong));
      expect_part(error, "error: edited.toml: decisions.offload_reloads has '" + wrong +
                             "', and no op that makes a value of that name reads '" + state + "'; the nearest is '");
      const std::size_t nearest = error.rfind('\'', error.size() - 2) + 1;
      const std::string right = error.substr(nearest, error.size() - 1 - nearest);
      expect_part(right, state + " before ");
      done(with_reload(right));
    }
  }
}

TEST_F(Plan, WhatStagesHoldIsChecked) {
  done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml", "--model.layers=4", "--train.batch=16",
        "--train.micro_batch=4", "--parallel.mesh=pp=2", "--parallel.pipeline=zero-bubble:auto"});
  const std::string text = read("plan.toml");
  const auto held = [&](const std::string& value) {
    write("edited.toml", replaced(text, "\n[decisions]\n", "\n[decisions]\nheld = " + value + "\n"));
    return std::vector<std::string>{
        "train", "tiny.toml", "--plan=edited.toml", "--model.layers=4", "--train.batch=16", "--dry-run"};
  };
  for (const char* right : {"1", "[2]", "[3, 1]", "[4, 4]"}) done(held(right));
  expect_parts(refused(held("[]")),
               {"error: edited.toml:", "decisions.held is an empty list", "one for all, or remove it"});
  expect_part(refused(held("[99, 99, 99]")), "edited.toml has decisions.held for 3 stages, and parallel.mesh has 2");
  expect_part(refused(held("[4, 99]")), "edited.toml has decisions.held = 99, and a step has 4 micro-batches");
  expect_part(refused(held("5")), "edited.toml has decisions.held = 5, and a step has 4 micro-batches");
  expect_part(refused(held("[0, 1]")), "decisions.held must be a number of micro-batches above zero");
  const std::vector<std::string> other = held("2");
  write("edited.toml", replaced(read("edited.toml"), "\"zero-bubble:auto\"", "\"1f1b\""));
  expect_part(refused(other), "there parallel.pipeline is \"1f1b\"; remove it");
}

// What is looked at is shown for the transport that it was planned for; what is run has its own.
TEST_F(Plan, HasATransport) {
  // Whose gradients are more than its activations.
  const std::vector<std::string> model = {"--train.batch=2", "--model.width=64"};
  const auto peak = [&](const std::vector<std::string>& more) {
    return nlohmann::json::parse(done(with(with({"memory", "tiny.toml", "--brief", "--json"}, model), more)).out)
        .at("ranks")
        .at(0)
        .at("predicted_peak_bytes")
        .get<std::int64_t>();
  };
  const std::vector<std::string> ranks = {"--parallel.mesh=dp=2", "--parallel.zero=1"};
  const std::int64_t threads = peak(ranks), mpi = peak(with({"--runtime.transport=mpi"}, ranks));
  EXPECT_GT(mpi, threads);
  done(with(with({"memory", "tiny.toml", "--brief", "--runtime.transport=mpi", "--plan-out=plan.toml"}, model), ranks));
  expect_part(read("plan.toml"), "\ntransport = \"mpi\"");
  EXPECT_EQ(peak({"--plan=plan.toml"}), mpi);
  const Finished f = done(with({"train", "tiny.toml", "--plan=plan.toml", "--output.dir=run"}, model));
  expect_part(f.err, "plan.toml was made for ranks over mpi, and these are over threads");
  EXPECT_EQ(metrics("run").back()["peak_bytes"], threads);
  expect_part(read("run/plan.toml"), "\ntransport = \"threads\"");
}

TEST_F(Plan, ContradictionsAndStrangersAreRefused) {
  done(with({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"}, settings_));
  EXPECT_EQ(refused({"train", "tiny.toml", "--plan=plan.toml", "--train.batch=16", "--parallel.zero=2"}),
            "error: --parallel.zero=2 contradicts the plan plan.toml, which has 1; leave it out, or edit the plan");
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=plan.toml", "--train.batch=16", "--model.layers=3"})
                .find("plan.toml was made for another model"),
            std::string::npos);
  const std::string text = read("plan.toml");
  write("wrong.toml", replaced(text, "recompute = [\n", "recompute = [\n  \"no.such.value\",\n"));
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=wrong.toml", "--train.batch=16"})
                .find("'no.such.value' is to be recomputed, and the forward phase makes no such value"),
            std::string::npos);
  write("misspelt.toml", replaced(text, "recompute =", "recomputed ="));
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=misspelt.toml", "--train.batch=16"})
                .find("a plan decides nothing called 'recomputed'; did you mean decisions.recompute?"),
            std::string::npos);
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=tiny.toml"}).find("is not part of a plan"), std::string::npos);
  EXPECT_NE(refused({"train", "tiny.toml", "--plan=nowhere.toml"}).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
