#include "trireme/train/plan_file.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/train/graphs.h"

namespace trireme::train {
namespace {

class PlanFileTest : public ::testing::Test {
 protected:
  static Config config(const std::vector<std::string>& base, const std::vector<std::string>& more) {
    std::vector<std::string> settings = {"runtime.device=cpu"};
    settings.insert(settings.end(), base.begin(), base.end());
    settings.insert(settings.end(), more.begin(), more.end());
    Config config = parse_config("", "test", settings);
    resolve_model(config, config.model.vocab);
    return config;
  }
  std::string digest(const std::vector<std::string>& base, const std::vector<std::string>& more = {}) const {
    return compiler::digest_of(build_graphs(config(base, more), registry_, {}));
  }
  // The plan of two ranks over a transport, as it is written.
  std::string plan_over(comm::TransportKind transport, const std::vector<std::string>& more = {}) const {
    const Config c = config(kLlama, more);
    return plan_text(c, make_plan(c, registry_, {.transport = transport}));
  }

  const std::vector<std::string> kLlama = {"model.family=llama", "model.layers=2",   "model.width=32", "model.heads=4",
                                           "model.kv_heads=2",   "model.context=16", "model.vocab=64", "train.batch=8"};
  Registry registry_;
};

// What is computed differs, though every state has the same name and type.
TEST_F(PlanFileTest, ModelsThatDifferInAttributesAloneHaveOtherDigests) {
  const std::string plain = digest(kLlama);
  for (const char* setting : {"model.context=32", "model.rope_theta=500000", "model.norm_eps=1e-3"})
    EXPECT_NE(digest(kLlama, {setting}), plain) << setting;
  const std::vector<std::string> gpt2 = {"model.family=gpt2", "model.layers=1", "model.width=16", "model.heads=2",
                                         "model.context=8",   "model.vocab=32", "train.batch=8"};
  EXPECT_NE(digest(gpt2, {"model.heads=4"}), digest(gpt2));
  EXPECT_NE(digest(gpt2, {"model.dropout=0.1"}), digest(gpt2, {"model.dropout=0.2"}));
}

TEST_F(PlanFileTest, ModelsThatDifferInWiringAloneHaveOtherDigests) {
  const auto digest_with = [&](const std::string& read) {
    compiler::Graphs graphs;
    graphs.module = ir::parse(fmt::format(R"(module {{
  graph micro {{
    input %x : f32[4,8]
    %a = relu(%x) : f32[4,8]
    %b = silu({}) : f32[4,8]
    %y = add(%a, %b) : f32[4,8]
    output y = %y
  }}
}}
)",
                                          read),
                              registry_.ops);
    return compiler::digest_of(graphs);
  };
  EXPECT_EQ(digest_with("%a"), digest_with("%a"));
  EXPECT_NE(digest_with("%a"), digest_with("%x"));
}

// As the program wrote it before digests had a number.
TEST_F(PlanFileTest, DigestsOfTheFirstFormAreKnown) {
  const std::vector<std::string> mlp = {"model.family=mlp", "model.layers=2",        "model.width=16",
                                        "model.image=8",    "data.images=synthetic", "train.batch=8"};
  const compiler::Graphs graphs = build_graphs(config(mlp, {}), registry_, {});
  EXPECT_TRUE(compiler::is_digest_of(compiler::digest_of(graphs), graphs));
  EXPECT_TRUE(compiler::is_digest_of("55ff088f27d5e7a3", graphs));
  EXPECT_FALSE(compiler::is_digest_of("0000000000000000", graphs));
  EXPECT_FALSE(compiler::is_digest_of("", graphs));
}

// A plan may be edited, and followed with another batch: the rows are none of the model's.
TEST_F(PlanFileTest, RowsAreNoPartOfAModelsDigest) {
  const std::vector<std::vector<std::string>> models = {
      kLlama,
      {"model.family=gpt2", "model.layers=2", "model.width=16", "model.heads=2", "model.context=8", "model.vocab=32",
       "model.dropout=0.1"},
      {"model.family=mlp", "model.layers=2", "model.width=16", "model.image=8", "data.images=synthetic"},
      {"model.family=convnet", "model.layers=2", "model.width=4", "model.image=8", "data.images=synthetic"},
      {"model.family=resnet", "model.layers=18", "model.width=4", "model.image=32", "data.images=synthetic"}};
  for (const std::vector<std::string>& model : models) {
    const std::string plain = digest(model, {"train.batch=8"});
    for (const std::vector<std::string>& rows :
         {std::vector<std::string>{"train.batch=16"},
          {"train.batch=8", "train.micro_batch=2"},
          {"train.batch=8", "parallel.mesh=dp=2"},
          {"train.batch=8", "parallel.mesh=pp=2", "parallel.pipeline=pipedream"}})
      EXPECT_EQ(digest(model, rows), plain) << model.front() << " with " << fmt::format("{}", fmt::join(rows, " "));
  }
}

TEST_F(PlanFileTest, NamesTheTransportThatItsScratchIsFor) {
  using comm::TransportKind;
  for (const TransportKind kind : {TransportKind::threads, TransportKind::emulated, TransportKind::mpi}) {
    const std::string text = plan_over(kind, {"parallel.mesh=dp=2"});
    EXPECT_NE(text.find(fmt::format("\ntransport = \"{}\"", comm::name_of(kind))), std::string::npos) << text;
    EXPECT_EQ(parse_plan(text, "plan.toml").decisions.transport, kind);
  }
  // One rank has nothing to exchange.
  EXPECT_FALSE(parse_plan(plan_over(TransportKind::threads), "plan.toml").decisions.transport);
  try {
    parse_plan("model = \"x\"\n[decisions]\ntransport = \"pigeon\"\n", "plan.toml");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "plan.toml:3: decisions.transport must be \"threads\", \"emulated\" or \"mpi\", got \"pigeon\"");
  }
}

// The decisions of a plan stand over any transport; the scratch is that of the one at hand.
TEST_F(PlanFileTest, IsFollowedOverAnotherTransport) {
  using comm::TransportKind;
  const std::vector<std::string> settings = {"parallel.mesh=dp=2", "parallel.zero=1", "memory.remat=full",
                                             "train.batch=2", "model.width=64"};
  const Config c = config(kLlama, settings);
  CompileOptions options{.transport = TransportKind::mpi};
  const Compiled decided = compile(c, registry_, options);
  options.decided = parse_plan(plan_over(TransportKind::threads, settings), "plan.toml").decisions;
  const Compiled followed = compile(c, registry_, options);
  EXPECT_EQ(followed.arena_bytes(), decided.arena_bytes());
  options.transport = TransportKind::threads;
  EXPECT_LT(compile(c, registry_, options).arena_bytes(), decided.arena_bytes());
}

}  // namespace
}  // namespace trireme::train
