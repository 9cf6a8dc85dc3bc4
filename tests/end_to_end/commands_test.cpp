// The commands other than `train`.
#include <gtest/gtest.h>

#include "end_to_end/program.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"
#include "trireme/ops/all.h"
#include "trireme/program/pass.h"
#include "trireme/train/config.h"

namespace trireme::testing {
namespace {

using Commands = Program;

TEST_F(Commands, HelpEverywhereWithAnExample) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{},
                                                                                       {"train"},
                                                                                       {"generate"},
                                                                                       {"memory"},
                                                                                       {"inspect"},
                                                                                       {"bench"},
                                                                                       {"bench", "step"},
                                                                                       {"config"},
                                                                                       {"doctor"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Finished f = done(arguments);
    EXPECT_NE(f.out.find("Example"), std::string::npos) << f.out;
    EXPECT_NE(f.out.find("\n  trireme "), std::string::npos) << f.out;
    EXPECT_TRUE(f.err.empty()) << f.err;
  }
  EXPECT_NE(done({}).out.find("trireme train"), std::string::npos);
  EXPECT_TRUE(done({"--version"}).out.starts_with("trireme "));
}

// As the launcher of a checkout ("./trireme") or an installed program ("trireme") was called.
TEST_F(Commands, TheCommandThatComesNextIsCalledAsTheRunWas) {
  const std::string out = done({"train", "tiny.toml", "--output.dir=run"}).out;
  expect_part(out, "\nnext    " + program_path() + " generate --from run --prompt '");
}

TEST_F(Commands, MemoryCategoriesSumToThePeak) {
  for (const char* keys : {"--train.precision=f32", "--train.precision=bf16", "--train.micro_batch=1"}) {
    const nlohmann::json plan = nlohmann::json::parse(done({"memory", "tiny.toml", "--json", keys}).out);
    ASSERT_EQ(plan["ranks"].size(), 1U);
    const nlohmann::json& rank = plan["ranks"][0];
    std::uint64_t sum = 0;
    for (const char* part : {"weights", "gradients", "optimizer", "activations", "workspace", "staging", "padding"}) {
      ASSERT_TRUE(rank.contains(part)) << part;
      sum += rank[part].get<std::uint64_t>();
    }
    EXPECT_EQ(sum, rank["predicted_peak_bytes"].get<std::uint64_t>());
    EXPECT_EQ(rank["rank"], 0);
    EXPECT_EQ(rank["tiers"], nlohmann::json({{"host", 0}, {"disk", 0}}));
  }
  const std::string table = done({"memory", "tiny.toml"}).out;
  for (const char* part : {"weights", "optimizer", "activations", "padding", "total", "alive at the peak"})
    EXPECT_NE(table.find(part), std::string::npos) << part;
}

// What the plan says without running is what the run uses.
TEST_F(Commands, MemoryAgreesWithTheRun) {
  const nlohmann::json plan = nlohmann::json::parse(done({"memory", "tiny.toml", "--json"}).out);
  done({"train", "tiny.toml", "--output.dir=run"});
  EXPECT_EQ(metrics("run").back()["peak_bytes"], plan["ranks"][0]["predicted_peak_bytes"]);
  EXPECT_EQ(nlohmann::json::parse(done({"memory", "run", "--json"}).out), plan);
}

TEST_F(Commands, GraphParsesBack) {
  const ir::Registry registry = ops::builtin();
  for (const char* family : {"gpt2", "llama"}) {
    const std::string text = done({"inspect", "graph", "tiny.toml", std::string("--model.family=") + family}).out;
    const ir::Module module = ir::parse(text, registry);
    ir::verify(module);
    EXPECT_TRUE(module.has_graph("micro") && module.has_graph("update"));
    EXPECT_EQ(ir::to_text(module), text);
  }
}

TEST_F(Commands, GraphAloneProgramAndDot) {
  const std::string whole = done({"inspect", "graph", "tiny.toml"}).out;
  const std::string micro = done({"inspect", "graph", "tiny.toml", "--graph=micro"}).out;
  EXPECT_NE(micro.find("matmul"), std::string::npos);
  EXPECT_LT(micro.size(), whole.size());
  const std::string dot = done({"inspect", "graph", "tiny.toml", "--dot"}).out;
  EXPECT_TRUE(dot.starts_with("digraph"));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  for (const char* program : {"step", "eval", "predict", "init", "refresh"})
    EXPECT_FALSE(done({"inspect", "program", "tiny.toml", std::string("--program=") + program}).out.empty()) << program;
  const std::string step = done({"inspect", "program", "tiny.toml"}).out;
  EXPECT_NE(step.find("adamw"), std::string::npos);
}

TEST_F(Commands, DumpedPassesParseBack) {
  done({"train", "tiny.toml", "--dry-run", "--dump-passes=passes", "--train.precision=bf16"});
  const ir::Registry registry = ops::builtin();
  std::size_t graphs = 0;
  for (const std::string& file : names_in("passes")) {
    const std::string text = read("passes/" + file);
    if (!text.starts_with("module")) continue;
    EXPECT_EQ(ir::to_text(ir::parse(text, registry)), text) << file;
    ++graphs;
  }
  EXPECT_EQ(names_in("passes").front(), "00-model.txt");
  EXPECT_GE(graphs, 7U);
}

// The files are those of one compilation, whatever was dumped there before; nothing else is touched.
TEST_F(Commands, DumpedPassesReplaceThoseOfAnEarlierRun) {
  const std::vector<std::string> dry = {"train", "tiny.toml", "--dry-run", "--dump-passes=passes", "--train.batch=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), dry.begin(), dry.end());
    return more;
  };
  done(with({"--parallel.mesh=dp=1"}));
  const std::vector<std::string> plain = names_in("passes");
  done(with({"--parallel.mesh=pp=2"}));
  EXPECT_TRUE(exists("passes/stage-1"));
  EXPECT_NE(names_in("passes"), plain);
  write("passes/notes.txt", "mine");
  write("passes/stage-0/notes.txt", "mine");
  done(with({"--parallel.mesh=dp=1"}));
  std::vector<std::string> kept = plain;
  kept.insert(kept.end(), {"notes.txt", "stage-0"});
  EXPECT_EQ(names_in("passes"), kept);
  EXPECT_EQ(names_in("passes/stage-0"), std::vector<std::string>{"notes.txt"});
  // A person's own file under the name of a dump stays, and so do the others.
  write("passes/01-notes.txt", "mine");
  kept.emplace_back("01-notes.txt");
  expect_parts(refused(with({})), {"--dump-passes=passes", "01-notes.txt is there, and is no dump of trireme"});
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(names_in("passes"), kept);
  expect_part(refused({"train", "tiny.toml", "--dry-run", "--dump-passes=text.txt"}),
              "--dump-passes=text.txt: that is there, and is no folder");
}

// The line about other ranks is of the proof that covers them.
TEST_F(Commands, SaysWhatRanksHaveBeenProvedToDoTogether) {
  const std::string one = done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=1"}).out;
  expect_part(one, "no race\n");
  const std::string replicas = done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2"}).out;
  expect_part(replicas, " collectives in one order on all ranks\n");
  const std::string stages = done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2"}).out;
  expect_parts(stages,
               {" collectives in one order on all ranks; ", " messages: every send has its receive, no deadlock\n"});
}

TEST_F(Commands, MemoryForScriptsSaysWhatIsShort) {
  const auto json = [&](const std::string& limit) {
    return nlohmann::json::parse(done({"memory", "tiny.toml", "--json", "--brief", limit}).out);
  };
  EXPECT_EQ(json("--memory.limit=1GiB").at("shortfalls"), nlohmann::json::array());
  const nlohmann::json short_of = json("--memory.limit=1KiB").at("shortfalls");
  ASSERT_EQ(short_of.size(), 1U);
  EXPECT_NE(short_of[0].get<std::string>().find("memory.limit = \"1KiB\" is too small"), std::string::npos);
}

// Graph passes, then the passes of each program, by one count.
TEST_F(Commands, DumpedPassesGoFromTheModelToThePrograms) {
  done({"train", "tiny.toml", "--dry-run", "--dump-passes=passes", "--parallel.mesh=dp=2", "--parallel.zero=3"});
  const std::vector<std::string> files = names_in("passes");
  const auto number_of = [&](const std::string& name) {
    for (const std::string& file : files)
      if (file.substr(3) == name + ".txt") return std::stoi(file.substr(0, 2));
    ADD_FAILURE() << "no file of " << name;
    return -1;
  };
  const int last_graph_pass = number_of("validate");
  EXPECT_LT(number_of("zero"), last_graph_pass);
  int number = last_graph_pass + 1;
  EXPECT_EQ(number_of("step-lower"), number++);
  for (const program::Pass& pass : program::program_passes())
    EXPECT_EQ(number_of(std::string("step-") + pass.name), number++) << pass.name;
  const auto text_of = [&](const std::string& name) {
    return read(fmt::format("passes/{:02}-{}.txt", number_of(name), name));
  };
  // The gathers of the weights leave the compute stream by the pass that says so, and offsets come with the memory
  // plan.
  EXPECT_EQ(text_of("step-copies").find("stream 3"), std::string::npos);
  EXPECT_NE(text_of("step-collectives").find("stream 3"), std::string::npos);
  EXPECT_NE(text_of("step-pages").find("not placed"), std::string::npos);
  EXPECT_NE(text_of("step-memory-plan").find("arena"), std::string::npos);
  EXPECT_EQ(text_of("step-capture-regions"),
            done({"inspect", "program", "tiny.toml", "--parallel.mesh=dp=2", "--parallel.zero=3"}).out);
}

TEST_F(Commands, ConfigLoadsBack) {
  const train::Config all = train::parse_config(done({"config"}).out, "all.toml");
  EXPECT_EQ(train::differing_keys(all, train::Config{}), std::vector<std::string>{});
  for (const train::Builtin& builtin : train::builtin_configs()) {
    const std::string name(builtin.name);
    write(name + ".toml", done({"config", name}).out);
    const train::Config from_file = train::load_config((folder() / (name + ".toml")).string());
    EXPECT_EQ(train::differing_keys(from_file, train::load_config(name)), std::vector<std::string>{}) << name;
    EXPECT_NE(done({"config"}).out.find(name), std::string::npos);
  }
}

TEST_F(Commands, Doctor) {
  const std::string out = done({"doctor"}).out;
  for (const char* part : {"cpu", "memory", "gpu", "transports", "libraries", "missing"})
    EXPECT_NE(out.find(part), std::string::npos) << part;
}

TEST_F(Commands, BenchStep) {
  const nlohmann::json result = nlohmann::json::parse(done({"bench", "step", "tiny.toml", "--json", "--steps=3"}).out);
  for (const char* key : {"step_ms", "tokens_per_s", "flops_per_step", "peak_bytes", "measured_peak_bytes"}) {
    ASSERT_TRUE(result.contains(key)) << key;
    EXPECT_GT(result[key], 0) << key;
  }
  const double tokens = result["tokens_per_s"].get<double>() * result["step_ms"].get<double>() / 1e3;
  EXPECT_NEAR(tokens, 4 * 16, 1e-6);
  // Measured is what the system says: never the plan itself.
  EXPECT_GT(result["measured_peak_bytes"], result["peak_bytes"]);
  EXPECT_LT(result["measured_peak_bytes"], result["resident_peak_bytes"]);
  EXPECT_NE(done({"bench", "step", "tiny.toml", "--by-op", "--steps=3"}).out.find("matmul"), std::string::npos);
  // Images count as one token each, and are called by their name.
  const nlohmann::json images = nlohmann::json::parse(done({"bench", "step", "two-layer", "--json", "--steps=3"}).out);
  EXPECT_NEAR(images.at("tokens_per_s").get<double>() * images.at("step_ms").get<double>() / 1e3, 4, 1e-6);
  EXPECT_EQ(images.at("images_per_s"), images.at("tokens_per_s"));
  expect_part(done({"bench", "step", "two-layer", "--steps=3"}).out, " images/s, ");
  EXPECT_FALSE(exists("runs"));
}

TEST_F(Commands, BenchAttention) {
  for (const char* mask : {"--json", "--full"}) {
    const Finished f = done({"bench", "attention", "--device=cpu", "--shapes=1x40x4x2x16", "--json", mask});
    const nlohmann::json line = nlohmann::json::parse(f.out);
    EXPECT_EQ(line["causal"], std::string(mask) != "--full");
    EXPECT_GT(line["forward_us"], 0);
    EXPECT_GT(line["gradient_us"], 0);
  }
}

TEST_F(Commands, BenchGemmTimesProducts) {
  const std::string out =
      done({"bench", "gemm", "--device=cpu", "--shapes=32x16x24", "--precisions=bf16", "--form=tn", "--json"}).out;
  const nlohmann::json result = nlohmann::json::parse(out);
  EXPECT_EQ(result["n"], 16);
  EXPECT_EQ(result["precision"], "bf16");
  EXPECT_NEAR(result["tflops"].get<double>(), 2.0 * 32 * 16 * 24 / result["us"].get<double>() / 1e6, 1e-9);
  EXPECT_GT(result["of_fastest"].get<double>(), 0);
  EXPECT_LE(result["of_fastest"].get<double>(), 1);
}

class Generate : public Program {
 protected:
  Generate() {
    done({"train", "tiny.toml", "--output.dir=run", "--output.checkpoint_every=3", "--train.steps=40",
          "--train.schedule=constant", "--output.keep=20"});
  }
  nlohmann::json tokens(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", "--from=run", "--prompt=oar ", "--json", "--tokens=24"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(done(arguments).out);
  }
};

TEST_F(Generate, GreedyIsDeterministic) {
  const nlohmann::json a = tokens({"--temperature=0"});
  EXPECT_EQ(a["tokens"].size(), 24U);
  EXPECT_EQ(a, tokens({"--temperature=0", "--seed=9"}));
  std::string text;
  for (const int token : a["tokens"]) text += static_cast<char>(token);
  EXPECT_EQ(a["text"], text);
  const Finished plain = done({"generate", "--from=run", "--prompt=oar ", "--tokens=24", "--temperature=0"});
  EXPECT_EQ(plain.out, "oar " + text + "\n");
  EXPECT_TRUE(plain.err.empty()) << plain.err;
}

TEST_F(Generate, SeedsDecide) {
  EXPECT_EQ(tokens({"--seed=3"}), tokens({"--seed=3"}));
  EXPECT_NE(tokens({"--seed=3", "--temperature=2"}), tokens({"--seed=4", "--temperature=2"}));
}

TEST_F(Generate, TokensInTokensOut) {
  const nlohmann::json a = tokens({"--temperature=0"});
  const Finished f =
      done({"generate", "--from=run", "--prompt-tokens=111,97,114,32", "--tokens=24", "--temperature=0"});
  EXPECT_EQ(nlohmann::json::parse("[" + f.out + "]"), a["tokens"]);
}

TEST_F(Generate, FromAnEarlierStep) {
  EXPECT_NE(tokens({"--temperature=0", "--step=3"}), tokens({"--temperature=0"}));
  EXPECT_EQ(tokens({"--temperature=0", "--step=40"}), tokens({"--temperature=0"}));
}

TEST_F(Generate, PromptLongerThanTheContext) {
  done({"generate", "--from=run", "--prompt=" + std::string(100, 'a'), "--tokens=3"});
}

}  // namespace
}  // namespace trireme::testing
