// The stages of a pipeline train like one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "equivalence/trajectory.h"
#include "trireme/core/error.h"
#include "trireme/models/families.h"
#include "trireme/program/check_together.h"

namespace trireme::testing {
namespace {

train::Config model(const std::string& name, std::int64_t layers, std::int64_t micro_batches) {
  train::Config config = small_model(name);
  config.train.batch = 12;
  config.train.micro_batch = 12 / micro_batches;
  if (!name.starts_with("resnet")) config.model.layers = layers;
  train::resolve_model(config, config.model.vocab);
  return config;
}

train::Config piped(const train::Config& plain, const std::string& mesh, const std::string& pipeline, int zero = 0) {
  train::Config config = plain;
  config.parallel.pipeline = pipeline;
  return over_mesh(config, mesh, zero);
}

class Pipeline : public ::testing::TestWithParam<std::string> {};

TEST_P(Pipeline, StagesTrainLikeOneRank) {
  for (const char* pipeline : {"sequential", "gpipe", "1f1b", "zero-bubble", "zero-bubble:auto"})
    for (const int stages : {2, 3, 4})
      for (const int micro_batches : {1, 3, 4, 6}) {
        if (steps_asked() <= 4 && (micro_batches == 1 || micro_batches == 6)) continue;
        SCOPED_TRACE(fmt::format("{} pp={} m={}", pipeline, stages, micro_batches));
        const train::Config plain = model(GetParam(), 4, micro_batches);
        expect_like_one_rank(plain, piped(plain, fmt::format("pp={}", stages), pipeline));
      }
}

TEST_P(Pipeline, SevenLayersOverThreeStages) {
  for (const char* pipeline : {"1f1b", "sequential", "gpipe", "zero-bubble", "zero-bubble:auto", "interleaved:2"})
    for (const int micro_batches : {4, 6}) {
      const bool chunks = std::string(pipeline) == "interleaved:2";
      std::vector<std::vector<std::int64_t>> all = {{}, {2, 2, 3}, {1, 5, 1}};
      if (chunks) all = {{}, {1, 1, 1, 1, 1, 2}};
      for (const std::vector<std::int64_t>& layers : all) {
        SCOPED_TRACE(fmt::format("{} m={} stages [{}]", pipeline, micro_batches, fmt::join(layers, ",")));
        const train::Config plain = model(GetParam(), 7, micro_batches);
        train::Config config = plain;
        config.parallel.stages = layers;
        expect_like_one_rank(plain, piped(config, "pp=3", pipeline));
      }
    }
}

TEST_P(Pipeline, SeveralChunksPerStage) {
  for (const auto& [stages, chunks] : {std::pair{2, 2}, {3, 2}, {2, 3}, {4, 2}})
    for (const int micro_batches : {2, 3, 4, 6}) {
      SCOPED_TRACE(fmt::format("pp={} interleaved:{} m={}", stages, chunks, micro_batches));
      const train::Config plain = model(GetParam(), stages * chunks > 6 ? 8 : 6, micro_batches);
      expect_like_one_rank(plain, piped(plain, fmt::format("pp={}", stages), fmt::format("interleaved:{}", chunks)));
    }
}

TEST_P(Pipeline, LayersOfEachChunkAsListed) {
  const train::Config plain = model(GetParam(), 6, 4);
  train::Config config = plain;
  config.parallel.stages = {1, 2, 1, 2};
  config.parallel.mesh = "pp=2";
  config.parallel.pipeline = "interleaved:2";
  train::check(config);
  expect_like_one_rank(plain, piped(config, "pp=2", "interleaved:2"));
}

TEST_P(Pipeline, WithReplicasAndShardedState) {
  for (const int zero : {0, 1, 2, 3})
    for (const char* mesh : {"pp=2,dp=2", "dp=2,pp=3"}) {
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      const train::Config plain = model(GetParam(), 4, 3);
      expect_like_one_rank(plain, piped(plain, mesh, "1f1b", zero));
    }
}

TEST_P(Pipeline, WithShardedMatrices) {
  for (const char* mesh : {"pp=2,tp=2", "tp=2,pp=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    const train::Config plain = model(GetParam(), 4, 3);
    expect_like_one_rank(plain, piped(plain, mesh, "1f1b", std::string(mesh).ends_with("dp=2") ? 1 : 0));
  }
}

TEST_P(Pipeline, EvaluatesAndPredictsLikeOneRank) {
  const train::Config plain = model(GetParam(), 4, 3);
  for (const char* pipeline : {"1f1b", "interleaved:2"}) {
    Trained one(plain);
    Trained many(piped(plain, "pp=2", pipeline));
    one.train(2);
    many.train(2);
    const train::Config held_out = [&] {
      train::Config c = plain;
      c.train.batch = plain.train.micro_batch;
      return c;
    }();
    const data::Batch batch = batch_of(held_out, 77);
    const train::Evaluation a = one.session().evaluate(batch);
    const train::Evaluation b = many.session().evaluate(batch);
    EXPECT_NEAR(a.loss, b.loss, 2e-5 * a.loss);
    EXPECT_EQ(a.accuracy, b.accuracy);
    const auto logits = [&](Trained& trained) {
      const auto row =
          reads_images(plain)
              ? trained.session().predict(std::span<const float>(batch.images)
                                              .first(batch.images.size() / static_cast<std::size_t>(batch.rows)))
              : trained.session().predict(
                    std::span<const std::int32_t>(batch.tokens).first(static_cast<std::size_t>(plain.model.context)));
      return std::vector<float>(row.begin(), row.end());
    };
    const std::vector<float> ours = logits(one);
    const std::vector<float> theirs = logits(many);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4);
  }
}

TEST_P(Pipeline, WithDropoutAndLowPrecision) {
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config plain = model(GetParam(), 4, 3);
    plain.model.dropout = 0.1;
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    if (std::string(precision) == "f32") {
      expect_like_one_rank(plain, piped(plain, "pp=3", "1f1b"), {.steps = 3});
      continue;
    }
    // AdamW would turn rounding, where a gradient is nearly zero, into full steps.
    plain.train.optimizer = "sgd";
    plain.train.lr = 0.05;
    expect_like_by_distance(plain, piped(plain, "pp=3", "1f1b"),
                            {.tolerance = kLowPrecision, .planted = std::string(precision) == "bf16"});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pipeline, ::testing::Values("mlp", "gpt2", "llama"));

// Running statistics stay with the stage that takes them.
TEST(PipelineImages, ConvolutionsTrainLikeOneRank) {
  for (const char* mesh : {"pp=2", "pp=3", "pp=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    const train::Config plain = model("convnet", 2, 3);
    expect_like_one_rank(plain, piped(plain, mesh, "1f1b"));
    // Of deep stacks of batch norms one step of SGD is what can be compared closely.
    train::Config residual = model("resnet18", 2, 3);
    residual.train.optimizer = "sgd";
    residual.train.lr = 0.01;  // an update is more than the rounding of the weights
    residual.train.batch = 96;
    residual.train.micro_batch = 32;
    expect_like_by_distance(residual, piped(residual, mesh, "1f1b"),
                            {.tolerance = {2e-5, 1e-3}, .steps = 1, .planted = mesh == std::string("pp=2")});
  }
}

// A residual network of four blocks, whose batch norms see enough rows that rounding does not grow from step to step.
Setup residual_blocks() {
  Setup setup;
  setup.registry.models = {};
  setup.registry.models.add(
      {"convnet",
       [](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
         const models::ResNetShape shape{.bottleneck = false, .blocks = {1, 1, 1, 1}, .widths = {4, 4, 8, 8}};
         return models::build_resnet(b, in, shape, c.classes);
       },
       true, [](models::ModelConfig&, const OptionNames&) {}});
  return setup;
}

TEST(PipelineImages, ResidualBlocksTrainLikeOneRank) {
  const bool all = steps_asked() > 4;
  for (const char* pipeline : {"1f1b", "zero-bubble", "zero-bubble:auto", "gpipe", "sequential", "interleaved:2"})
    for (const int stages : {3, 2, 4})
      for (const int micro_batches : {3, 4}) {
        const bool chunks = std::string(pipeline) == "interleaved:2";
        if (!all && (stages != 3 || pipeline[0] == 's' || pipeline[0] == 'g' || (chunks && micro_batches == 3)))
          continue;
        SCOPED_TRACE(fmt::format("{} pp={} m={}", pipeline, stages, micro_batches));
        train::Config plain = model("convnet", 2, micro_batches);
        plain.model.image = 13;
        plain.train.batch = 96;
        plain.train.micro_batch = plain.train.batch / micro_batches;
        expect_like_one_rank(plain, piped(plain, fmt::format("pp={}", stages), pipeline), {.setup = residual_blocks()});
      }
}

// Statistics are written by the forward pass, once, however much of it is recomputed.
TEST(PipelineImages, StatisticsAreTakenOnceUnderRecomputation) {
  train::Config plain = model("resnet18", 2, 4);
  plain.train.optimizer = "sgd";
  plain.train.lr = 0.01;
  plain.train.batch = 96;
  plain.train.micro_batch = 24;
  train::Config config = plain;
  config.memory.remat = "full";
  for (const char* pipeline : {"1f1b", "gpipe", "interleaved:2"}) {
    SCOPED_TRACE(pipeline);
    expect_like_by_distance(plain, piped(config, "pp=2", pipeline), {.tolerance = {2e-5, 1e-3}, .steps = 1});
  }
}

// What both kinds of gradients read comes back for the first of them, though a weight's stands first in the graph.
TEST(PipelineMemory, WeightGradientsLastReadWhatHasComeBack) {
  train::Config config = wider_model("gpt2");
  config.train.batch = 12;
  config.train.micro_batch = 3;
  config.parallel.pipeline = "zero-bubble";
  train::resolve_model(config, config.model.vocab);
  config = over_mesh(config, "pp=2");
  Trained resident(config);
  config.memory.offload = "activations";
  config.memory.offload_policy = "all";
  Trained offloaded(config);
  EXPECT_GT(offloaded.compiled().tier_bytes(2), 0U);
  resident.train(4);
  offloaded.train(4);
  expect_same_bits(resident, offloaded);
}

// Of each micro-batch that is under way a stage in the middle holds what enters its layers; of all of them together,
// one layer's activations and what is on its way to the next stage.
TEST(PipelineMemory, UnderFullRecomputationStagesHoldWhatEntersTheirLayers) {
  constexpr std::int64_t kRows = 2;
  const auto arena = [](std::int64_t layers, const char* pipeline, std::int64_t micro_batches, std::size_t stage) {
    train::Config config = small_model("gpt2");
    config.train.batch = kRows * micro_batches;
    config.train.micro_batch = kRows;
    config.model.layers = 4 * layers;
    config.parallel.stages = {layers, layers, layers, layers};
    config.memory.remat = "full";
    return Trained(piped(config, "pp=4", pipeline)).compiled().roles[stage].arena_bytes;
  };
  const train::Config config = small_model("gpt2");
  const std::size_t entering = static_cast<std::size_t>(kRows * config.model.context * config.model.width) * 4;
  for (const std::size_t layers : {2U, 4U}) {
    const auto count = static_cast<std::int64_t>(layers);
    const std::size_t each = layers * entering;
    for (const std::size_t stage : {1U, 2U}) {
      SCOPED_TRACE(fmt::format("{} layers in stage {}", layers, stage));
      // gpipe holds all micro-batches, 1f1b as many as there are stages from this one on.
      EXPECT_EQ(arena(count, "gpipe", 10, stage) - arena(count, "gpipe", 7, stage), 3 * each);
      EXPECT_LE(arena(count, "1f1b", 10, stage), arena(count, "1f1b", 7, stage));
    }
    // Stage 1 has two activations on their way when its first backward begins, stage 2 one.
    EXPECT_EQ(arena(count, "1f1b", 7, 1) - arena(count, "1f1b", 7, 2), each + entering);
  }
}

TEST(PipelineMemory, ZeroBubbleAutoHoldsWhatTheLimitAllows) {
  train::Config plain = model("gpt2", 4, 12);
  train::Config config = piped(plain, "pp=4", "zero-bubble:auto");
  const auto held = [](const Trained& trained) {
    const std::vector<int> stages = program::held(trained.compiled().plan.schedule(trained.compiled().micro_batches));
    return *std::max_element(stages.begin(), stages.end());
  };
  const Trained free(config);
  const Trained least(piped(plain, "pp=4", "1f1b"));
  ASSERT_GT(held(free), 4);
  ASSERT_GT(free.compiled().arena_bytes(), least.compiled().arena_bytes());
  config.memory.limit.count = (free.compiled().arena_bytes() + least.compiled().arena_bytes()) / 2;
  const Trained limited(config);
  EXPECT_LE(limited.compiled().arena_bytes(), config.memory.limit.count);
  EXPECT_LT(held(limited), held(free));
  plain.memory.limit = {};
  expect_like_one_rank(plain, config);
}

// Where the last stage has most of the layers, the others still hold as many as they have room for.
TEST(PipelineMemory, ZeroBubbleAutoHoldsWhatEachStageHasRoomFor) {
  train::Config plain = model("gpt2", 9, 12);
  train::Config config = piped(plain, "pp=4", "1f1b");
  config.parallel.stages = {1, 1, 1, 6};
  config.memory.limit.count = Trained(config).compiled().arena_bytes() / 20 * 21;
  config.parallel.pipeline = "zero-bubble:auto";
  const Trained limited(config);
  EXPECT_LE(limited.compiled().arena_bytes(), config.memory.limit.count);
  const std::vector<int>& held = limited.compiled().plan.max_held;
  ASSERT_EQ(held.size(), 4U);
  const int fewest = *std::min_element(held.begin(), held.end());
  EXPECT_EQ(held.back(), fewest);
  EXPECT_GT(held.front(), fewest);
  // With as many in all stages as the fullest has room for, a step takes longer.
  const auto takes = [&](const std::vector<int>& most) {
    compiler::Plan other = limited.compiled().plan;
    other.max_held = most;
    return program::time_schedule(other.schedule(limited.compiled().micro_batches)).makespan;
  };
  EXPECT_LT(takes(held), takes({fewest})) << fmt::format("{}", fmt::join(held, " "));
  plain.memory.limit = {};
  expect_like_one_rank(plain, config);
}

// Bytes of the messages that all stages send in a step, by channel.
std::map<std::string, std::size_t> sent_bytes(const train::Compiled& compiled) {
  std::map<std::string, std::size_t> bytes;
  for (const train::Role& role : compiled.roles)
    for (const program::Instruction& i : role.program("step").instructions)
      if (i.kind == program::Instruction::Kind::send)
        bytes[i.attributes.text("channel")] += i.inputs.front().type.bytes();
  return bytes;
}

TEST(PipelineMessages, InFewerBytesTheyTrainNearlyAlike) {
  constexpr std::int64_t kSteps = 4;  // what is rounded in one step changes all later ones
  for (const char* name : {"gpt2", "llama"}) {
    const train::Config plain = model(name, 4, 4);
    const train::Config whole = piped(plain, "pp=3", "1f1b");
    Trained same(whole);
    same.train(kSteps);
    const auto all = sent_bytes(same.compiled());
    for (const char* dtype : {"bf16", "int8"}) {
      SCOPED_TRACE(fmt::format("{} {}", name, dtype));
      train::Config config = plain;
      config.parallel.stage_dtype = dtype;
      // int8 has seven bits and a scale for many elements, where bf16 has eight for each.
      const Tolerance tolerance = {5e-3, std::string(dtype) == "bf16" ? 0.05 : 0.15};
      expect_like_by_distance(whole, piped(config, "pp=3", "1f1b"),
                              {.tolerance = tolerance, .steps = kSteps, .planted = true});
      Trained small(piped(config, "pp=3", "1f1b"));
      small.train(kSteps);
      for (std::size_t i = 1; i < same.losses().size(); ++i)
        EXPECT_NE(small.losses()[i], same.losses()[i]) << "nothing is rounded";
      EXPECT_EQ(small.session().highest_offset(), small.compiled().arena_bytes());
      for (const auto& [channel, bytes] : sent_bytes(small.compiled())) {
        SCOPED_TRACE(channel);
        if (channel == "tie")  // copies of a parameter stay equal to the bit
          EXPECT_EQ(bytes, all.at(channel));
        else if (std::string(dtype) == "bf16")
          EXPECT_EQ(2 * bytes, all.at(channel));
        else
          EXPECT_LT(3 * bytes, all.at(channel));
      }
    }
  }
}

std::vector<float> stored(train::Rank& rank, const std::string& name) {
  const ir::Module& module = rank.role().module;
  std::vector<float> values(static_cast<std::size_t>(module.state(module.find_state(name)).type.elements()));
  rank.read_state(name, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// The table is on the first and on the last stage.
TEST(PipelineTies, ATiedTableCountsOnceAndItsCopiesAreEqual) {
  train::Config plain = model("gpt2", 4, 4);
  plain.train.clip = 0.1;
  Trained one(plain);
  Trained many(piped(plain, "pp=3", "1f1b"));
  for (int step = 0; step < 20; ++step) {
    const train::StepResult a = one.step();
    const train::StepResult b = many.step();
    EXPECT_GT(a.grad_norm, plain.train.clip) << "nothing is clipped";
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 2e-5 * a.grad_norm) << "step " << step;
  }
  expect_equal_training(one, many, 2e-5);
  EXPECT_EQ(many.compiled().role_of(1).module.find_state("wte.weight"), ir::kNone);
  for (const char* name : {"wte.weight", "wte.weight/m", "wte.weight/v"})
    EXPECT_EQ(stored(many.session().rank(0), name), stored(many.session().rank(2), name)) << name;
}

TEST(PipelineScalars, AStageWithoutParametersJoins) {
  const train::Config plain = model("mlp", 1, 3);
  const train::Config config = piped(plain, "pp=4", "1f1b");
  const Trained compiled(config);
  EXPECT_TRUE(std::any_of(compiled.compiled().roles.begin(), compiled.compiled().roles.end(),
                          [](const train::Role& role) { return role.stored_parameters() == 0; }));
  expect_like_one_rank(plain, config);
}

// Each stage has one of two layers; the other one's state stays as it was too.
TEST(PipelineScalars, AnOverflowInOneStageSkipsTheUpdateEverywhere) {
  for (const char* name : {"layers.0.weight", "head.weight"}) {
    SCOPED_TRACE(name);
    Trained many(piped(model("mlp", 2, 3), "pp=2", "1f1b"));
    many.train(1);
    const float inf = std::numeric_limits<float>::infinity();
    many.session().write_state(name, 0, std::as_bytes(std::span(&inf, 1)));
    const auto before = many.state();
    EXPECT_FALSE(many.step().finite);
    many.session().each(
        [](train::Rank& rank) { EXPECT_EQ(rank.step_executor().scalar("finite"), 0) << rank.number(); });
    EXPECT_EQ(many.state(), before);
    EXPECT_TRUE(many.session().explain(batch_of(model("mlp", 2, 3), 1), 1, 1e-3, 0).has_value());
  }
}

// The same where nothing of it reaches the other stage but the sum of the norms.
TEST(PipelineScalars, AnOverflowOfOneStagesGradientsSkipsTheUpdateEverywhere) {
  for (const std::size_t stage : {0U, 1U}) {
    SCOPED_TRACE(stage);
    int planted = 0;
    const auto plant = [&](train::Compiled& compiled) {
      train::Role& role = compiled.roles[stage];
      for (program::Program& p : role.programs) {
        if (p.name != "step") continue;
        const auto squares = std::find_if(p.instructions.begin(), p.instructions.end(), [](const auto& i) {
          return i.kind == program::Instruction::Kind::launch && i.op->name == "sum_squares";
        });
        ASSERT_NE(squares, p.instructions.end());
        program::Instruction infinite;
        infinite.name = "planted";
        infinite.op = &role.module.registry->at("scale");
        infinite.attributes = {{"factor", std::numeric_limits<double>::infinity()}};
        infinite.inputs = infinite.outputs = {squares->inputs[0]};
        infinite.phase = ir::Phase::update;
        infinite.stream = squares->stream;
        infinite.waits = squares->waits;
        p.instructions.insert(squares, infinite);
        ++planted;
      }
    };
    Trained many(piped(model("mlp", 2, 3), "pp=2", "1f1b"), {.rework = plant});
    EXPECT_EQ(planted, 1);
    const auto before = many.state();
    EXPECT_FALSE(many.step().finite);
    many.session().each(
        [](train::Rank& rank) { EXPECT_EQ(rank.step_executor().scalar("finite"), 0) << rank.number(); });
    EXPECT_EQ(many.state(), before);
  }
}

// What the stages of a run do in a step, to be spoilt.
struct Planted {
  explicit Planted(const Trained& trained) : groups(trained.compiled().groups) {
    for (const train::Role& role : trained.compiled().roles) programs.push_back(role.program("step"));
  }
  std::string error() const {
    std::vector<program::RoleProgram> running;
    for (std::size_t r = 0; r < programs.size(); ++r)
      running.push_back({fmt::format("stage {}", r), &programs[r], {static_cast<int>(r)}});
    try {
      program::check_together(running, groups);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::vector<std::size_t> find(std::size_t role, program::Instruction::Kind kind) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < programs[role].instructions.size(); ++i)
      if (programs[role].instructions[i].kind == kind) found.push_back(i);
    return found;
  }
  std::vector<program::Program> programs;
  std::vector<program::Group> groups;
};

void expect_names(const std::string& error, const std::vector<std::string>& all) {
  for (const std::string& part : all)
    EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' is not in: " << error;
}

TEST(PipelineCheck, CatchesWhatDoesNotFitTogether) {
  using Kind = program::Instruction::Kind;
  const Trained trained(piped(model("mlp", 2, 3), "pp=2", "1f1b"));
  EXPECT_EQ(Planted(trained).error(), "");

  Planted removed(trained);
  const std::size_t last = removed.find(0, Kind::send).back();
  const std::int32_t event = removed.programs[0].instructions[last].records;
  removed.programs[0].instructions.erase(removed.programs[0].instructions.begin() + static_cast<std::ptrdiff_t>(last));
  for (program::Instruction& i : removed.programs[0].instructions) std::erase(i.waits, event);
  expect_names(removed.error(), {"that nobody sends", "(receive ", "of stage 1"});

  Planted swapped(trained);
  const std::vector<std::size_t> sends = swapped.find(0, Kind::send);
  std::swap(swapped.programs[0].instructions[sends[0]].micro, swapped.programs[0].instructions[sends[1]].micro);
  expect_names(swapped.error(), {"(send ", "of stage 0", "(receive ", "of stage 1"});

  // Stage 0 sends its last micro-batch only when it has the gradients of it.
  Planted deadlock(trained);
  program::Instruction& late = deadlock.programs[0].instructions[deadlock.find(0, Kind::receive).back()];
  ASSERT_NE(late.records, program::kNone);
  deadlock.programs[0].instructions[deadlock.find(0, Kind::send).back()].waits.push_back(late.records);
  expect_names(deadlock.error(),
               {"a deadlock", "(send 'layers.0.relu.sent'", "of stage 0", "(send 'layers.1.grad", "of stage 1"});
}

// Slices of images have programs of their own, in which a rank meets others in the same order.
TEST(PipelineCheck, SwappedCollectivesOfTwoRolesAreNamed) {
  const Trained trained(over_mesh(model("convnet", 2, 1), "h=2"));
  Planted swapped(trained);
  EXPECT_EQ(swapped.error(), "");
  const std::vector<std::size_t> all = swapped.find(0, program::Instruction::Kind::collective);
  std::vector<program::Instruction>& own = swapped.programs[0].instructions;
  std::size_t other = 1;
  while (other < all.size() && own[all[other]].op == own[all[0]].op) ++other;
  ASSERT_LT(other, all.size());
  std::swap(own[all[0]].op, own[all[other]].op);
  std::swap(own[all[0]].attributes, own[all[other]].attributes);
  std::swap(own[all[0]].name, own[all[other]].name);
  expect_names(swapped.error(), {"of stage 0", "of stage 1", own[all[0]].op->name});
}

}  // namespace
}  // namespace trireme::testing
