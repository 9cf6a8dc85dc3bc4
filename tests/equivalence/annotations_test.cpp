// Whatever a user annotates in parallel.sharding trains like one plain rank, or is refused before the run.
//
//   TRIREME_ANNOTATIONS=300       draws that many (seeds 1, 2, …)
//   TRIREME_ANNOTATIONS_FROM=101  … from that seed on
//   TRIREME_ANNOTATION=17         draws seed 17 alone
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "equivalence/training.h"
#include "equivalence/trajectory.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/train/compile.h"
#include "trireme/train/sharding.h"

namespace trireme::testing {
namespace {

// A model with sizes that several numbers of ranks divide.
train::Config annotated_model(const std::string& name) {
  train::Config config = small_model(name);
  config.train.batch = 12;
  if (reads_images(config)) {
    config.model.image = 12;
  } else {
    config.model.context = 16;
    config.model.layers = 3;
  }
  return config;
}

struct Annotated {
  std::string model;
  std::string mesh;
  std::map<std::string, std::string> sharding;
  int zero = 0;
  bool sequence = false;
  std::vector<std::string> more = {};
  std::string pipeline = "1f1b";
  std::vector<std::string> of_plan = {};  // settings that one rank has no use for

  std::string text() const {
    std::vector<std::string> parts;
    for (const auto& [pattern, what] : sharding) parts.push_back(fmt::format("\"{}\"=\"{}\"", pattern, what));
    return fmt::format("{} {} zero={}{} {} {} {} {}", model, mesh, zero, sequence ? " sequence" : "", pipeline,
                       fmt::join(parts, " "), fmt::join(more, " "), fmt::join(of_plan, " "));
  }
  train::Config plain() const {
    train::Config config = annotated_model(model);
    // Stages need several micro-batches, and take as many of themselves.
    if (ir::parse_mesh(mesh).size_of(ir::kPipelineAxis) > 1) config.train.micro_batch = 6;
    for (const std::string& setting : more) train::apply_setting(config, setting);
    // No update is skipped.
    if (config.train.precision == train::Precision::fp16) config.train.loss_scale = 1024;
    return config;
  }
  train::Config config() const {
    train::Config config = plain();
    config.parallel.sharding = sharding;
    config.parallel.sequence = sequence;
    config.parallel.pipeline = pipeline;
    for (const std::string& setting : of_plan) train::apply_setting(config, setting);
    return over_mesh(config, mesh, zero);
  }
};

// In 16 bits like one rank in 16 bits.
void expect_annotated_like_one_rank(const Annotated& a, std::int64_t steps = 2) {
  SCOPED_TRACE(a.text());
  try {
    if (a.plain().train.precision != train::Precision::f32) {
      expect_like_by_distance(a.plain(), a.config(), {.tolerance = kLowPrecision, .steps = steps});
      return;
    }
    Trained one(a.plain());
    Trained many(a.config());
    one.train(steps);
    many.train(steps);
    expect_equal_training(one, many, 2e-5);
    const data::Batch batch = batch_of(a.plain(), steps);
    const double loss = one.session().evaluate(batch).loss;
    EXPECT_NEAR(loss, many.session().evaluate(batch).loss, 2e-5 * loss) << "of evaluation";
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

void expect_refused(const Annotated& a, const std::string& words) {
  SCOPED_TRACE(a.text());
  try {
    Trained many(a.config());
    ADD_FAILURE() << "is not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

// Every rank reads the slice of its inputs that their sharding says, whichever axis shards whichever dimension.
TEST(Annotations, SlicesOfImagesAreThoseThatTheirShardingSays) {
  for (const Annotated& a :
       {Annotated{"convnet", "h=2", {{"images", "width:h"}}},
        {"convnet", "w=2", {{"images", "height:w"}}},
        {"convnet", "h=2,w=2", {{"images", "height:w,width:h"}}},
        {"convnet", "dp=2", {{"images", "height:dp"}}},
        {"convnet", "dp=3", {{"images", "channel:dp"}}},
        {"mlp", "dp=2", {{"images", "height:dp"}}},
        {"convnet", "tp=2", {{"images", "height:tp"}}},
        {"convnet", "tp=3", {{"images", "channel:tp"}}},
        {"convnet", "tp=2", {{"labels", "batch:tp"}, {"images", "batch:tp"}}},
        {"convnet", "dp=2,tp=2", {{"labels", "batch:tp"}}, 1},
        {"convnet", "dp=2,h=2", {{"images", "width:h,channel:dp"}}, 0, false, {"model.channels=4"}}})
    expect_annotated_like_one_rank(a);
}

TEST(Annotations, SlicesOfTokensAreThoseThatTheirShardingSays) {
  for (const Annotated& a : {Annotated{"gpt2", "dp=2", {{"targets", "sequence:dp"}}},
                             {"gpt2", "dp=2", {{"tokens", "sequence:dp"}}},
                             {"gpt2", "tp=2", {{"tokens", "sequence:tp"}}},
                             {"gpt2", "tp=2", {{"targets", "sequence:tp"}}},
                             {"gpt2", "tp=2", {{"targets", "batch:tp"}}},
                             {"llama", "dp=2,tp=2", {{"tokens", "sequence:tp"}, {"targets", "batch:tp"}}, 1},
                             {"gpt2", "tp=2,dp=2", {{"tokens", "batch:tp"}}}})
    expect_annotated_like_one_rank(a);
}

// Rows that other axes than dp share out, and rows that dp does not.
TEST(Annotations, DropoutDropsTheSameElementsUnderAnySharding) {
  for (const Annotated& a : {Annotated{"gpt2", "tp=2", {{"tokens", "batch:tp"}}},
                             {"gpt2", "dp=2", {{"tokens", "sequence:dp"}, {"targets", "sequence:dp"}}},
                             {"gpt2", "dp=2,tp=2", {{"tokens", "batch:tp,sequence:dp"}}}}) {
    Annotated dropping = a;
    dropping.more = {"model.dropout=0.2"};
    expect_annotated_like_one_rank(dropping);
  }
}

// A graph that predicts has one row, which nothing shares out.
TEST(Annotations, ABatchIsSharedOutThoughOneRowIsPredicted) {
  for (const Annotated& a : {Annotated{"convnet", "dp=2,h=2", {{"images", "batch:dp,height:h"}}},
                             {"convnet", "dp=2,h=2", {{"images", "batch:dp,height:h"}}, 0, false, {"model.image=13"}},
                             {"gpt2", "dp=2", {{"tokens", "batch:dp"}}},
                             {"gpt2", "dp=2,tp=2", {{"tokens", "0:dp"}, {"*.mlp.up.weight", "out:tp"}}},
                             {"gpt2", "tp=2", {{"*.embedding", "0:tp"}}}})
    expect_annotated_like_one_rank(a);
  const Annotated a{"gpt2", "dp=2,tp=2", {{"tokens", "batch:dp,sequence:tp"}}};
  Trained one(a.plain());
  Trained many(a.config());
  const std::vector<std::int32_t> tokens(16, 3);
  const auto few = one.session().predict(tokens);
  const auto own = many.session().predict(tokens);
  ASSERT_EQ(few.size(), own.size());
  for (std::size_t i = 0; i < few.size(); ++i) ASSERT_NEAR(few[i], own[i], 1e-4F) << i;
}

// What is sharded as no preset would.
TEST(Annotations, GradientsAreShardedAsTheirParameters) {
  for (const int zero : {1, 2, 3}) {
    expect_annotated_like_one_rank({"gpt2", "dp=2,tp=2", {{"*.attn.*.weight", "out:tp"}}, zero});
    expect_annotated_like_one_rank({"gpt2", "dp=2,tp=2", {{"*.mlp.*.weight", "out:tp"}}, zero});
  }
}

// One over dp and another over tp. In 16 bits the copy that the model reads is sharded as its parameter is, which ZeRO
// cuts once.
TEST(Annotations, ParametersOfDifferentAxesTrainLikeOneRank) {
  for (const Annotated& a : {Annotated{"gpt2", "dp=2,tp=2", {{"*.attn.proj.weight", "in:tp"}, {"wpe.weight", "in:dp"}}},
                             {"llama", "dp=2,tp=2", {{"*.q.weight", "out:tp"}, {"*.v.weight", "out:dp"}}},
                             {"mlp", "dp=2,tp=2", {{"layers.1.weight", "out:dp"}, {"layers.*.weight", "in:tp"}}},
                             {"convnet", "dp=2,tp=2", {{"head.weight", "in:dp"}, {"blocks.1.conv.weight", "out:tp"}}}})
    for (const int zero : {0, 1, 2, 3})
      for (const char* precision : {"bf16", "fp16"}) {
        Annotated low = a;
        low.zero = zero;
        low.more = {fmt::format("train.precision={}", precision)};
        expect_annotated_like_one_rank(low);
      }
}

// An axis shards the rows of a batch in one place and a weight's dimension in another, which has too few elements for
// both axes.
TEST(Annotations, AxesThatMeetInADimensionTooSmallForBothTrainLikeOneRank) {
  const std::vector<std::string> heads = {"model.kv_heads=2"};
  for (const Annotated& a :
       {Annotated{"llama", "dp=2,tp=2", {{"*.q.weight", "out:tp"}, {"*.v.weight", "out:dp"}}, 0, false, heads},
        {"llama", "dp=2,tp=2", {{"*.q.weight", "out:tp"}, {"*.k.weight", "out:dp"}}, 0, true, heads},
        {"llama", "dp=2,tp=2", {{"*.k.weight", "out:tp"}, {"*.v.weight", "out:dp"}}, 2, false, heads},
        {"llama", "pp=2,dp=2,tp=2", {{"*.o.weight", "in:tp"}, {"*.k.weight", "out:dp"}}, 0, false, heads},
        {"convnet",
         "dp=2,tp=4",
         {{"blocks.0.conv.weight", "out:tp"}, {"blocks.1.conv.weight", "in:dp"}},
         0,
         false,
         {"model.width=4"}}})
    expect_annotated_like_one_rank(a);
}

TEST(Annotations, MatricesThatDoNotGoTogetherTrainLikeOneRank) {
  expect_annotated_like_one_rank({"gpt2", "tp=2", {{"*.mlp.up.weight", "out:tp"}, {"*.attn.proj.weight", "out:tp"}}});
}

TEST(Annotations, WhatTwoStagesShareIsSummedWhereItIsMade) {
  expect_annotated_like_one_rank({"gpt2", "pp=2,tp=2", {{"wte.weight", "1:tp"}}});
  expect_annotated_like_one_rank({"llama", "tp=3,dp=2,pp=2", {{"head.weight", "1:tp"}}});
}

// What input and weight gradients both read is resharded once, and a schedule may put the weight gradients off.
TEST(Annotations, SplitBackwardsReshardBeforeTheFirstReader) {
  for (const Annotated& a : {Annotated{"gpt2", "pp=2,tp=2", {{"*.mlp.down.weight", "out:tp"}}},
                             {"gpt2", "pp=2,dp=2", {{"wpe.weight", "in:dp"}}},
                             {"mlp", "pp=2,tp=2", {{"head.weight", "out:tp"}}},
                             {"llama", "pp=2,tp=2,dp=2", {{"*.attn.o.weight", "out:tp"}}, 2}})
    for (const char* pipeline : {"zero-bubble", "zero-bubble:auto"}) {
      Annotated split = a;
      split.pipeline = pipeline;
      expect_annotated_like_one_rank(split);
    }
  // So does a file, in which one of two stages splits its backwards.
  const auto file = std::filesystem::path(::testing::TempDir()) / fmt::format("annotated_{}.schedule", ::getpid());
  std::ofstream(file) << "F0 F1 B0 B1 W0 W1 U\nF0 B0 F1 B1 U\n";
  for (const Annotated& a : {Annotated{"gpt2", "pp=2,tp=2", {{"*.mlp.down.weight", "out:tp"}}},
                             {"mlp", "pp=2,tp=2", {{"layers.0.weight", "out:tp"}, {"head.weight", "out:tp"}}}}) {
    Annotated own = a;
    own.pipeline = "file:" + file.string();
    expect_annotated_like_one_rank(own);
  }
}

// The square of the one gradient that is sharded over tp is summed by itself.
TEST(Annotations, TheNormOfOneShardedGradientIsThatOfOneRank) {
  expect_annotated_like_one_rank({"llama", "dp=2,tp=2", {{"head.weight", "vocab:tp"}}, 2});
  expect_annotated_like_one_rank({"llama", "tp=2,dp=2,pp=2", {{"head.weight", "vocab:tp"}}, 2, true});
}

TEST(Annotations, WhatCannotBeIsRefusedByItsKey) {
  expect_refused({"gpt2", "pp=2", {{"*.mlp.up.weight", "out:pp"}}}, "the nearest is \"out:tp\"");
  expect_refused({"gpt2", "tp=2", {{"*.mlp.up.weight", "out:tp,in:tp"}}}, "the nearest is \"out:tp\"");
  expect_refused({"gpt2", "tp=3", {{"tokens", "sequence:tp"}}}, "the nearest is tp=2");
  expect_refused({"convnet", "tp=4", {{"*.conv.weight", "1:tp"}}}, "the nearest is tp=3");
  expect_refused({"convnet", "h=2", {{"*.conv.weight", "2:h"}}}, "the nearest is \"images\" = \"height:h\"");
  // Start values are those of their states.
  expect_refused({"gpt2", "tp=2", {{"*.mlp.down.weight.init", "0:tp"}}},
                 "no parameter, input or value has such a name");
  // Inside, tp is in two parts here: ranks share key heads.
  expect_refused(
      {"llama", "tp=4", {{"*.attn.q.weight", "out:tp"}, {"tokens", "sequence:tp"}}, 0, false, {"model.context=18"}},
      "\"tp=4\"");
}

// A name is more exact than a pattern, and wins, in whichever order they are given.
TEST(Annotations, TheMoreExactWins) {
  const Annotated a{"gpt2", "tp=2", {{"*.mlp.up.weight", "out:tp"}, {"blocks.1.mlp.up.weight", "in:tp"}}};
  const Trained trained(a.config());
  const ir::Module& module = trained.role().module;
  EXPECT_EQ(module.state(module.find_state("blocks.0.mlp.up.weight")).sharding.str(), "[tp,_]");
  EXPECT_EQ(module.state(module.find_state("blocks.1.mlp.up.weight")).sharding.str(), "[_,tp]");
}

// Rows are shared out over dp though parameters at both ends of the model have that axis too: the tied table, which is
// read first and last.
// Each use moves a parameter that is annotated over dp, or its results, whichever is fewer bytes: in a micro-batch at
// most what is gathered forwards and backwards, and what scatters its gradient. Of rows nothing moves but tokens.
void expect_no_more_moved(const Annotated& a) {
  const Trained many(a.config());
  const ir::Module& module = many.role().module;
  const auto over_data = [](const ir::Node& node) {
    return node.op->traits.collective && node.attributes.text("axis") == ir::kDataAxis;
  };
  double most = 0;
  for (const ir::State& state : module.states)
    if (const std::size_t whole = state.type.bytes() * 2; state.trained)
      for (const std::vector<std::string>& axes : state.sharding.dims)
        if (std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end())
          most += 3 * static_cast<double>(whole) / 2;
  double moved = 0;
  const ir::Graph& micro = module.graph("micro");
  for (const ir::Node& node : micro.nodes)
    for (std::size_t i = 0; over_data(node) && i < node.inputs.size(); ++i) {
      const TensorType& type = micro.type(node.inputs[i]);
      if (!is_float(type.dtype)) continue;
      const bool gathers = node.op->name == "all_gather";
      moved += static_cast<double>(type.bytes()) * (gathers || node.op->name == "all_reduce" ? 1 : 0.5);
    }
  EXPECT_LE(moved, most);
}

TEST(Annotations, RowsAreSharedOutWhateverIsAnnotatedOverData) {
  const std::vector<std::string> even = {"model.vocab=60"};  // of other tables gradients are summed whole
  for (const Annotated& a :
       {Annotated{"gpt2", "dp=2", {{"wte.weight", "vocab:dp"}}, 0, false, even},
        {"gpt2", "dp=2,tp=2", {{"wte.weight", "vocab:dp"}, {"*.mlp.up.weight", "out:tp"}}, 2, false, even},
        {"llama", "dp=2", {{"embed.weight", "vocab:dp"}, {"head.weight", "vocab:dp"}}, 1},
        {"llama", "dp=2", {{"*.up.weight", "out:dp"}, {"*.down.weight", "in:dp"}}},
        {"mlp", "dp=2", {{"layers.0.weight", "in:dp"}, {"head.weight", "in:dp"}}},
        {"mlp", "dp=2", {{"layers.0.weight", "out:dp"}, {"layers.1.weight", "in:dp"}}},
        {"convnet", "dp=2", {{"blocks.*.conv.weight", "out:dp"}, {"head.weight", "in:dp"}}},
        // What predicts reads one row, of which dp has nothing to share out.
        {"gpt2", "dp=2", {{"wpe.weight", "1:dp"}}},
        {"gpt2", "dp=2", {{"wte.weight", "1:dp"}}},
        {"gpt2", "dp=2", {{"*.mlp.down.weight", "out:dp"}, {"*.attn.proj.weight", "out:dp"}}},
        {"llama", "dp=2", {{"*.down.weight", "out:dp"}}},
        // Annotations of values that say nothing of rows.
        {"llama", "dp=2,tp=2", {{"*.add", "sequence:tp"}}},
        {"gpt2", "dp=2,tp=2", {{"*.add", "feature:tp"}, {"*.gelu", "sequence:tp"}}},
        {"mlp", "dp=2,tp=2", {{"*.relu", "1:tp"}}},
        {"convnet", "dp=2,tp=2", {{"*.relu", "height:tp"}}},
        {"convnet", "dp=2,h=2,tp=2", {{"*.relu", "channel:tp"}}}}) {
    SCOPED_TRACE(a.text());
    const train::ExplainedSharding explained = train::explain_sharding(a.config(), train::Registry{});
    const ir::Graph& micro = explained.module.graph("micro");
    int rows = 0;
    for (const ir::ValueInfo& value : micro.values) {
      const bool has_rows = value.type.shape.rank() > 1 && value.type.shape[0] == a.config().train.batch;
      if (!has_rows || value.kind == ir::ValueInfo::Kind::state || value.name.find("grad") != value.name.npos) continue;
      ++rows;
      EXPECT_EQ(value.sharding.dims.empty() ? "" : fmt::format("{}", fmt::join(value.sharding.dims[0], "+")), "dp")
          << value.name;
    }
    EXPECT_GT(rows, 4);
    Annotated alone = a;  // without what ZeRO gathers
    alone.zero = 0;
    expect_no_more_moved(alone);
    expect_annotated_like_one_rank(a);
  }
}

// Gathers that go together have their operands when they begin, of parameters and of what is made of them.
TEST(Annotations, GathersForUseComeBehindWhatTheyGather) {
  for (const Annotated& a : {Annotated{"mlp", "dp=3", {{"layers*", "0:dp"}}},
                             {"mlp", "dp=2", {{"layers*", "0:dp"}}},
                             {"gpt2", "dp=2", {{"*.mlp.down*", "0:dp"}}, 2}})
    expect_annotated_like_one_rank(a);
}

// What servers add up are terms. Rows that dp and tp cannot both share out are whole on the replicas, and so are then
// gradients: of those one counts.
TEST(Annotations, ServersSumTermsAndTakeOneOfWhatIsWhole) {
  for (const Annotated& a : {Annotated{"llama", "dp=2,tp=2", {{"*.add", "sequence:tp"}}},
                             {"llama", "dp=2,tp=2", {{"*.add", "batch:tp"}}, 0, false, {"train.micro_batch=6"}},
                             {"gpt2", "dp=2,tp=2", {{"*.layer_norm", "batch:tp"}}, 0, false, {"train.micro_batch=6"}},
                             {"mlp", "dp=2,tp=2", {{"*.relu", "batch:tp"}}, 0, false, {"train.micro_batch=6"}},
                             {"convnet", "dp=2,tp=2", {{"*.relu", "batch:tp"}}, 0, false, {"train.micro_batch=6"}},
                             {"llama", "pp=2,dp=2,tp=2", {{"*.add", "batch:tp"}}}})
    for (const std::vector<std::string>& plan :
         std::vector<std::vector<std::string>>{{"parallel.server=sync"},
                                               {"parallel.server=sync", "parallel.servers=2"},
                                               {"parallel.server=sync", "train.clip=0.1"}}) {
      Annotated served = a;
      served.of_plan = {plan.front()};
      if (plan.back().starts_with("train"))
        served.more.push_back(plan.back());
      else
        served.of_plan = plan;
      expect_annotated_like_one_rank(served);
    }
  Annotated clipped{"llama", "dp=2,tp=2", {{"*.add", "batch:tp"}},
                    0,       false,       {"train.micro_batch=6", "train.clip=0.5", "train.optimizer=sgd"}};
  clipped.of_plan = {"parallel.server=sync", "parallel.compress=topk:0.2"};
  expect_refused(clipped, "the nearest is parallel.compress = \"int8\"");
}

// The rows whose statistics a rank takes are its own, also where a convolution would be made in channels over dp.
// Their slices are taken in the forward pass, which the next micro-batch's follows.
TEST(Annotations, ShardedRunningStatisticsGoThroughAPipeline) {
  for (const char* pattern : {"*.bn.running_mean", "*.bn.running_var", "blocks.0.*"})
    for (const char* pipeline : {"1f1b", "gpipe", "zero-bubble"}) {
      Annotated a{"convnet", "pp=2,dp=2", {{pattern, "0:dp"}}};
      a.pipeline = pipeline;
      expect_annotated_like_one_rank(a);
    }
}

TEST(Annotations, OwnStatisticsAreThoseOfTheRowsOfARank) {
  for (const char* mesh : {"dp=2", "dp=2,h=2"})
    for (const auto& sharding : std::vector<std::map<std::string, std::string>>{
             {{"blocks.1.conv.weight", "out:dp"}},
             {{"*.relu", "channel:dp"}},
             {{"blocks.1.bn.relu", "height:dp"}},
             {{"*bn*", "0:dp"}},
             {{"blocks.0.conv.weight", "out:dp"}, {"blocks.1.bn.bias", "0:dp"}, {"blocks.1.conv.weight", "in:dp"}}}) {
      train::Config rows = over_mesh(annotated_model("convnet"), mesh);
      rows.train.batch_stats = train::BatchStats::local;
      train::Config annotated = rows;
      annotated.parallel.sharding = sharding;
      SCOPED_TRACE(fmt::format("{} {}", mesh, sharding.begin()->first));
      expect_like_by_distance(rows, annotated, {.tolerance = {2e-5, 5e-4}, .steps = 2, .planted = true});
    }
  // Whatever tp does.
  for (const char* mesh : {"dp=2", "dp=2,h=2"})
    for (const auto& [pattern, sharding] :
         std::vector<std::pair<std::string, std::string>>{{"*bn*", "0:tp"},
                                                          {"*.relu", "batch:tp"},
                                                          {"*.relu", "height:tp"},
                                                          {"*.relu", "channel:tp"},
                                                          {"blocks.0.max_pool2d", "height:tp"},
                                                          {"labels", "batch:tp"},
                                                          {"images", "batch:tp"}}) {
      train::Config own = annotated_model("convnet");
      own.train.batch_stats = train::BatchStats::local;
      train::Config annotated = over_mesh(own, fmt::format("{},tp=2", mesh));
      annotated.parallel.sharding = {{pattern, sharding}};
      SCOPED_TRACE(fmt::format("{} {} {}", mesh, pattern, sharding));
      expect_like_by_distance(over_mesh(own, mesh), annotated,
                              {.tolerance = {2e-5, 5e-4}, .steps = 2, .planted = true});
    }
}

// ---- drawn

class DrawnAnnotations {
 public:
  // With `stages` the mesh has pp.
  explicit DrawnAnnotations(std::uint32_t seed, bool stages = false) : random_(seed), stages_(stages) {}

  Annotated run() {
    static const std::vector<std::string> models = {"gpt2", "llama", "mlp", "convnet"};
    const std::string& model = models[below(models.size())];
    result_.model = model;
    const bool images = reads_images(annotated_model(model));
    draw_mesh(model == "convnet");
    result_.mesh = mesh_;
    result_.zero = static_cast<int>(ir::parse_mesh(mesh_).size_of("dp") > 1 ? below(4) : 0);
    result_.sequence = !images && ir::parse_mesh(mesh_).size_of("tp") > 1 && below(4) == 0;
    if (!images && below(3) == 0) result_.more.emplace_back("model.dropout=0.1");
    if (below(3) == 0) result_.more.emplace_back("train.micro_batch=6");
    find_names();
    const std::size_t count = 1 + below(3);
    for (std::size_t i = 0; i < count; ++i) annotate();
    const ir::Mesh mesh = ir::parse_mesh(mesh_);
    if (mesh.size_of("dp") > 1 && mesh.size_of("tp") > 1 && below(2) == 0)
      for (const char* axis : {"dp", "tp"}) annotate_parameter(axis);
    // bf16 rounds eight times as much as fp16, and what models of images make of that would hide a fault.
    if (const std::size_t precision = below(5); precision < 2)
      result_.more.push_back(fmt::format("train.precision={}", precision == 0 && !images ? "bf16" : "fp16"));
    return result_;
  }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  void draw_mesh(bool spatial) {
    while (true) {
      std::vector<std::string> axes;
      const auto add = [&](const char* axis, std::size_t size) {
        if (size > 1) axes.push_back(fmt::format("{}={}", axis, size));
      };
      add("dp", 1 + below(2));
      add("tp", std::vector<std::size_t>{1, 2, 2, 3, 4}[below(5)]);
      if (spatial) add("h", 1 + below(2));
      if (spatial) add("w", 1 + below(2));
      add("pp", below(4) == 0 || stages_ ? 2 : 1);
      std::shuffle(axes.begin(), axes.end(), random_);
      mesh_ = fmt::format("{}", fmt::join(axes, ","));
      const int ranks = ir::parse_mesh(mesh_).ranks();
      if (ranks > 1 && ranks <= 8 && ranks > ir::parse_mesh(mesh_).size_of("pp")) return;
    }
  }

  void find_names() {
    const train::Planned planned = train::make_plan(result_.plain(), train::Registry{}, {});
    for (const ir::State& state : planned.graphs.module.states)
      if (state.trained) parameters_.emplace_back(state.name, state.type.shape);
    const ir::Graph& micro = planned.graphs.module.graph("micro");
    for (const ir::ValueId id : micro.inputs)
      if (micro.value(id).name != "rng") inputs_.emplace_back(micro.value(id).name, micro.type(id).shape);
    for (const ir::Node& node : micro.nodes)
      for (const ir::ValueId id : node.outputs) values_.emplace_back(micro.value(id).name, micro.type(id).shape);
  }

  void annotate() {
    const std::size_t kind = below(10);
    const auto& names = kind < 5 ? parameters_ : kind < 7 ? inputs_ : values_;
    const auto& [name, shape] = names[below(names.size())];
    if (shape.rank() == 0) return annotate();
    std::string pattern = pattern_of(name);
    // All values of its op.
    if (kind == 9) pattern = "*" + name.substr(std::min(name.rfind('.'), name.find_first_of("#:")));
    std::vector<std::string> axes;
    for (const ir::Mesh::Axis& axis : ir::parse_mesh(mesh_).axes)
      if (axis.name != ir::kPipelineAxis && axis.size > 1) axes.push_back(axis.name);
    std::shuffle(axes.begin(), axes.end(), random_);
    axes.resize(1 + (axes.size() > 1 && below(4) == 0 ? 1 : 0));
    std::vector<std::string> parts;
    parts.reserve(axes.size());
    for (const std::string& axis : axes)
      parts.push_back(fmt::format("{}:{}", below(static_cast<std::size_t>(shape.rank())), axis));
    result_.sharding[pattern] = fmt::format("{}", fmt::join(parts, ","));
  }

  // A matrix of the model, over one axis.
  void annotate_parameter(const char* axis) {
    const auto& [name, shape] = parameters_[below(parameters_.size())];
    if (shape.rank() < 2) return annotate_parameter(axis);
    const std::string pattern = pattern_of(name);
    result_.sharding[pattern] = fmt::format("{}:{}", below(2) == 0 ? "out" : "in", axis);
  }

  // A layer's number may stand for all.
  std::string pattern_of(const std::string& name) {
    const std::size_t dot = name.find('.', name.find('.') + 1);
    if (name.starts_with("blocks.") && dot != std::string::npos && below(2) == 0) return "*" + name.substr(dot);
    return name;
  }

  std::mt19937 random_;
  bool stages_;
  Annotated result_{};
  std::string mesh_;
  std::vector<std::pair<std::string, Shape>> parameters_, inputs_, values_;
};

std::uint32_t drawn(const char* variable, std::uint32_t otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoi(value));
}

// `change` is made to each that is drawn.
void expect_drawn(std::uint32_t otherwise, bool stages, const std::function<void(Annotated&)>& change) {
  const std::uint32_t only = drawn("TRIREME_ANNOTATION", 0);
  const std::uint32_t first = only > 0 ? only : drawn("TRIREME_ANNOTATIONS_FROM", 1);
  const std::uint32_t count = only > 0 ? 1 : drawn("TRIREME_ANNOTATIONS", otherwise);
  std::uint32_t refused = 0;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    Annotated a = DrawnAnnotations(seed, stages).run();
    change(a);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    try {
      train::compile(a.config(), train::Registry{}, {});
    } catch (const Error& e) {
      ++refused;
      EXPECT_EQ(e.kind(), Error::Kind::request) << a.text() << "\n" << e.what();
      const std::string why = e.what();
      EXPECT_NE(why.find("nearest"), why.npos) << a.text() << "\nsays what works: " << why;
      if (only > 0) fmt::print("{}\nrefused: {}\n", a.text(), why);
      continue;
    }
    expect_annotated_like_one_rank(a);
  }
  fmt::print("{} of {} refused\n", refused, count);
  EXPECT_TRUE(only != 0 || refused * 2 < count) << refused << " of " << count << " refused";
}

TEST(Annotations, DrawnOnesTrainLikeOneRankOrAreRefused) {
  expect_drawn(40, false, [](Annotated&) {});
}

// Next to servers, and to gradients that are rounded to 16 bits.
TEST(Annotations, DrawnOnesNextToServersTrainLikeOneRankOrAreRefused) {
  std::uint32_t servers = 0;
  expect_drawn(30, false, [&](Annotated& a) {
    a.zero = 0;
    std::erase_if(a.more, [](const std::string& setting) { return setting.starts_with("train.precision"); });
    a.of_plan = {"parallel.server=sync", fmt::format("parallel.servers={}", 1 + servers++ % 2)};
    // Servers have the place of dp.
    std::erase_if(a.sharding, [](const auto& given) { return given.second.find(":dp") != std::string::npos; });
  });
}

TEST(Annotations, DrawnOnesOfSplitBackwardsTrainLikeOneRankOrAreRefused) {
  expect_drawn(15, true, [](Annotated& a) { a.pipeline = "zero-bubble"; });
}

}  // namespace
}  // namespace trireme::testing
