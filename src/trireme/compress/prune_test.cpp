// A model that has lost slices computes what it did with them at zero.
#include "trireme/compress/prune.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/train/graphs.h"

namespace trireme::compress {
namespace {

const train::Registry& registry() {
  static const train::Registry instance;
  return instance;
}

Model model_of(const std::string& model) {
  Model made{train::parse_config("[model]\n" + model + "\n[parallel]\nmesh = \"dp=1\"\n", "test"), {}};
  train::resolve_model(made.config, made.config.model.vocab, registry().models);
  train::Config own = made.config;
  own.train.batch = own.train.micro_batch = 8;
  const train::Compiled compiled = train::compile(own, registry(), {.purpose = train::Purpose::evaluate});
  train::Session session(compiled, 1);
  session.initialize(7);
  for (const ir::State& state : compiled.saved_states()) made.states[state.name] = session.state(state.name);
  // Nothing at zero or one, where a forgotten term would not show.
  SplitMix random(5);
  for (auto& [name, bytes] : made.states)
    for (float& x : made.floats(name)) x = std::abs(x) * 0.9F + static_cast<float>(random.unit() - 0.5) * 0.2F;
  return made;
}

double loss(const Model& model) {
  Running running(model, registry(), {.purpose = train::Purpose::evaluate});
  const models::ModelConfig& m = model.config.model;
  data::Batch batch;
  batch.rows = 8;
  SplitMix random(11);
  if (registry().models.at(m.family).images) {
    for (std::int64_t i = 0; i < 8 * m.image * m.image * m.channels; ++i)
      batch.images.push_back(static_cast<float>(random.unit()));
    for (int i = 0; i < 8; ++i) batch.labels.push_back(i % static_cast<int>(m.classes));
  } else {
    for (std::int64_t i = 0; i < 8 * m.context; ++i) {
      batch.tokens.push_back(static_cast<std::int32_t>(random.next() % static_cast<std::uint64_t>(m.vocab)));
      batch.targets.push_back(static_cast<std::int32_t>(random.next() % static_cast<std::uint64_t>(m.vocab)));
    }
  }
  return running.session().evaluate(batch).loss;
}

// Every second slice of every group of a kind, in all its trained members.
void zero_slices(Model& model, passes::DimensionGroup::Kind kind) {
  train::Config own = model.config;
  own.train.batch = own.train.micro_batch = 1;
  const compiler::Graphs graphs = train::build_graphs(own, registry(), {});
  for (const passes::DimensionGroup& group : passes::dimension_groups(graphs.module, graphs.module.graph("micro"))) {
    if (group.kind != kind) continue;
    for (const passes::DimensionGroup::Member& member : group.members) {
      if (!member.trained) continue;
      const Shape& shape = graphs.module.state(graphs.module.find_state(member.state)).type.shape;
      const std::int64_t inner = member.repeat * shape.elements(member.dim + 1, shape.rank());
      const std::span<float> w = model.floats(member.state);
      for (std::int64_t i = 0; i < std::ssize(w); ++i)
        if (i / inner % group.slices % 2 == 1) w[static_cast<std::size_t>(i)] = 0;
    }
  }
}

struct Case {
  const char* model;
  const char* step;
  passes::DimensionGroup::Kind kind;
};

class Shrink : public ::testing::TestWithParam<Case> {};

TEST_P(Shrink, LosesWhatWasZero) {
  Model model = model_of(GetParam().model);
  zero_slices(model, GetParam().kind);
  const double before = loss(model);
  Model smaller = model;
  prune(smaller, parse_prune(GetParam().step).front(), {}, registry());
  EXPECT_NEAR(loss(smaller), before, 1e-5 * std::abs(before));
  std::size_t bytes = 0, fewer = 0;
  for (const auto& [name, state] : model.states) bytes += state.size();
  for (const auto& [name, state] : smaller.states) fewer += state.size();
  EXPECT_LT(fewer, bytes);
}
constexpr const char* kGpt2 = "family = \"gpt2\"\nlayers = 2\nwidth = 32\nheads = 4\ncontext = 8\nvocab = 50";
constexpr const char* kLlama =
    "family = \"llama\"\nlayers = 2\nwidth = 32\nheads = 8\nkv_heads = 4\nffn = 48\ncontext = 8\nvocab = 50";
constexpr const char* kMlp =
    "family = \"mlp\"\nlayers = 3\nwidth = 24\nimage = 6\nchannels = 2\nclasses = 5\n[data]\nimages = \"synthetic\"";
constexpr const char* kConvnet =
    "family = \"convnet\"\nlayers = 2\nwidth = 8\nimage = 8\nchannels = 2\nclasses = 5\n[data]\nimages = \"synthetic\"";
using Kind = passes::DimensionGroup::Kind;
INSTANTIATE_TEST_SUITE_P(
    Models, Shrink,
    ::testing::Values(Case{kGpt2, "heads:0.5", Kind::heads}, Case{kGpt2, "neurons:0.5", Kind::neurons},
                      Case{kLlama, "heads:0.5", Kind::heads}, Case{kLlama, "neurons:0.5", Kind::neurons},
                      Case{kMlp, "neurons:0.5", Kind::neurons}, Case{kConvnet, "channels:0.5", Kind::channels}));

TEST(ShrinkKeys, FollowTheShapes) {
  Model model = model_of(kGpt2);
  prune(model, parse_prune("heads:0.25").front(), {}, registry());
  prune(model, parse_prune("neurons:0.3").front(), {}, registry());
  EXPECT_EQ(model.config.model.heads, 3);
  EXPECT_EQ(model.config.model.head_dim, 8);
  EXPECT_EQ(model.config.model.width, 32);
  EXPECT_EQ(model.config.model.ffn, 90);
  EXPECT_TRUE(std::isfinite(loss(model)));
  Model llama = model_of(kLlama);
  prune(llama, parse_prune("heads:0.25").front(), {}, registry());
  EXPECT_EQ(llama.config.model.heads, 6);
  EXPECT_EQ(llama.config.model.kv_heads, 3);
  EXPECT_EQ(llama.config.model.head_dim, 4);
}

// The block that matters least to the loss leaves: here one that adds nothing.
TEST(ShrinkBlocks, ThoseThatAddNothingLeaveFirst) {
  Model model = model_of("family = \"gpt2\"\nlayers = 4\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 50");
  for (auto& [name, bytes] : model.states)
    if (name.starts_with("blocks.2.attn.proj") || name.starts_with("blocks.2.mlp.down"))
      for (float& x : model.floats(name)) x = 0;
  const double before = loss(model);
  Model smaller = model;
  prune(smaller, parse_prune("blocks:0.25").front(),
        {.loss = [&](const Model& m) { return std::abs(loss(m) - before); }}, registry());
  EXPECT_EQ(smaller.config.model.layers, 3);
  EXPECT_NEAR(loss(smaller), before, 1e-6 * std::abs(before));
  EXPECT_EQ(smaller.states.at("blocks.2.mlp.up.weight"), model.states.at("blocks.3.mlp.up.weight"));
}

TEST(PruneElements, ShareAndPattern) {
  Model model = model_of(kGpt2);
  Model sparse = model;
  prune(sparse, parse_prune("unstructured:0.8").front(), {}, registry());
  EXPECT_NEAR(sparsity_of(sparse, registry()), 0.8, 1e-3);
  prune(model, parse_prune("2:4").front(), {}, registry());
  const std::span<const float> w = model.floats("blocks.1.mlp.down.weight");
  for (std::size_t i = 0; i < w.size(); i += 4)
    EXPECT_EQ((w[i] == 0) + (w[i + 1] == 0) + (w[i + 2] == 0) + (w[i + 3] == 0), 2);
}

TEST(PruneElements, BadRequestsAreRefused) {
  const auto refused = [](const std::string& text) {
    try {
      parse_prune(text);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("nothing");
  };
  EXPECT_NE(refused("neuron:0.3").find("\"neurons\""), std::string::npos) << refused("neuron:0.3");
  EXPECT_NE(refused("heads:1.2").find("above 0 and below 1"), std::string::npos);
  EXPECT_NE(refused("2:4:0.7").find("2:4"), std::string::npos);
  Model model = model_of(kGpt2);
  EXPECT_THROW(prune(model, parse_prune("channels:0.5").front(), {}, registry()), Error);
}

}  // namespace
}  // namespace trireme::compress
