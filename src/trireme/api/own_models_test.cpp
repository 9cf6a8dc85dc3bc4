// Models drawn at random, sharded by annotations drawn at random, train like one rank or are refused before they do.
#include "trireme/api/own_models_test.h"

#include <gtest/gtest.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/library.h"
#include "support/prices.h"

namespace {

using trireme::testing::Draw;
using trireme::testing::plain_sgd;

// Sequences of features through blocks of several kinds. Sizes are such that most ranks do not divide most of them.
struct DrawnModel {
  std::int64_t positions, features, hidden;
  std::vector<std::int64_t> blocks, norms;
  std::int64_t head;
  bool shared;

  explicit DrawnModel(Draw& draw)
      : positions(draw.one_of<std::int64_t>({6, 8, 9, 15})),
        features(draw.one_of<std::int64_t>({9, 10, 12})),
        hidden(draw.one_of<std::int64_t>({10, 12, 15, 16})),
        head(draw.below(5)),
        shared(draw.below(3) == 0) {
    const std::int64_t kind = draw.below(5);
    for (std::int64_t i = 2 + draw.below(3); i > 0; --i) {
      blocks.push_back(shared ? kind : draw.below(5));
      norms.push_back(shared ? 1 : draw.below(3));
    }
  }

  tri::Value normed(const tri::Builder& k, const tri::Value& x, std::int64_t norm) const {
    return norm == 0 ? x : norm == 1 ? layer_norm(k, x) : rms_norm(k, x);
  }

  tri::Value mixed(const tri::Builder& up, const tri::Builder& down, const tri::Value& x) const {
    const tri::Value h = gelu(linear(up, x, hidden, {.deviation = 0.3}));
    return linear(down, h, x.shape().back(), {.deviation = 0.2});
  }

  tri::Value block(tri::Builder& b, std::int64_t i, const tri::Value& x) const {
    const bool again = shared && i > 0;
    const auto scope = [&](tri::Builder& in, const char* name) {
      return again ? in.scope(name).shared() : in.scope(name);
    };
    tri::Builder k = shared ? scope(b, "block") : b.scope("blocks", static_cast<int>(i));
    const std::int64_t kind = blocks[static_cast<std::size_t>(i)];
    const tri::Value n = normed(scope(k, "norm"), x, norms[static_cast<std::size_t>(i)]);
    if (kind == 0) return x + mixed(scope(k, "up"), scope(k, "down"), n);
    if (kind == 1) return x + transpose(mixed(scope(k, "up"), scope(k, "down"), transpose(n, 1, 2)), 1, 2);
    if (kind == 2) return n + k.parameter("table", {positions, features}, tri::Init::normal(0.3));
    if (kind == 3) return x + n * k.parameter("gate", {features}, tri::Init::normal(0.3));
    return x + linear(scope(k, "whole"), n, features, {.bias = false, .deviation = 0.2});
  }

  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    tri::Value x = linear(b.scope("first"), in["x"], features, {.deviation = 0.5});
    for (std::int64_t i = 0; i < std::ssize(blocks); ++i) x = block(b, i, x);
    const tri::Builder out = b.scope("out");
    const bool narrow = head == 3;
    if (head == 1) x = mean(x, 1);
    if (head == 2) x = mean(x, 2);
    if (narrow) x = sum(x, 2);
    tri::Value y = linear(out, x, head == 0 ? 5 : head == 4 ? hidden : 3, {.deviation = narrow ? 0.03 : 0.3});
    if (head == 4) y = mean(y, 2);
    if (in.predicting) return y;
    if (head == 4) return batch_mean(b, y * y);
    if (head == 0) return squared_error(b, y, in["y"]);
    return squared_error(b, y, reshape(slice(slice(in["y"], 1, 0, 1), 2, 0, 3), {in["y"].shape()[0], 3}));
  }

  tri::Data data() const {
    const std::vector<tri::Input> inputs = {{.name = "x", .shape = {positions, 4}},
                                            {.name = "y", .shape = {positions, 5}, .target = true}};
    const auto write = [=](std::int64_t i, tri::Sample& to) {
      for (const tri::Input& input : inputs) {
        const auto values = to.floats(input.name);
        for (std::size_t v = 0; v < values.size(); ++v)
          values[v] = std::sin(0.37f * static_cast<float>(13 * i + 5 * static_cast<std::int64_t>(v) + input.name[0]));
      }
    };
    return own_inputs(80, inputs, write, {.order = "sequential", .holdout = 0.1});
  }
};

struct Trained {
  std::vector<double> losses;
  double eval = 0;
  std::map<std::string, std::vector<float>> weights;
};

Trained trained_by(tri::Trainer t) {
  Trained r;
  t.on_step([&](const tri::Metrics& m) {
    r.losses.push_back(m.loss);
    return tri::Next::go;
  });
  r.eval = t.run().eval_loss.value();
  for (const tri::Parameter& p : t.parameter_list()) r.weights[p.name] = t.values(p.name);
  return r;
}

tri::TrainOptions four_steps() {
  tri::TrainOptions options = plain_sgd(4);
  options.batch = 12;
  options.lr = 0.005;
  options.micro_batch = 3;
  return options;
}

void expect_alike(const Trained& one, const Trained& sharded) {
  ASSERT_EQ(one.losses.size(), sharded.losses.size());
  for (std::size_t s = 0; s < one.losses.size(); ++s)
    EXPECT_NEAR(sharded.losses[s], one.losses[s], 2e-5 * (1 + one.losses[s])) << "step " << s;
  EXPECT_NEAR(sharded.eval, one.eval, 2e-5 * (1 + one.eval));
  for (const auto& [name, expected] : one.weights) {
    const std::vector<float>& own = sharded.weights.at(name);
    ASSERT_EQ(own.size(), expected.size()) << name;
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(own[i]) - static_cast<double>(expected[i])));
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    }
    EXPECT_LT(worst, 2e-5 * (1 + largest)) << name;
  }
}

// The first of them were found to count padded positions in the loss, to give padding a gradient behind a mean, and to
// leave a stage without the gradient of a parameter that another one gathers.
TEST(OwnModels, DrawnOnesTrainLikeOneRankOrAreRefused) {
  const char* given = std::getenv("TRIREME_OWN_MODELS");
  const std::int64_t count = given == nullptr ? 30 : std::atoll(given);
  std::int64_t trained = 0;
  for (std::int64_t seed = 0; seed < count; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const DrawnModel model(draw);
    tri::TrainOptions options = plain_sgd(4);
    options.batch = 12;
    options.lr = 0.005;
    options.micro_batch = draw.one_of<std::int64_t>({2, 3, 6});
    const tri::Trainer plain{model, model.data(), options};
    const std::vector<tri::Parameter> parameters = plain.parameter_list();
    tri::Plan plan;
    plan.mesh =
        draw.one_of<std::string>({"tp=2", "tp=3", "tp=4", "dp=2,tp=2", "pp=2,tp=2", "tp=3,pp=2", "pp=2,dp=2,tp=2"});
    plan.zero = static_cast<int>(plan.mesh.find("dp") == std::string::npos ? 0 : draw.below(4));
    for (std::int64_t a = 1 + draw.below(2); a > 0; --a) {
      const tri::Parameter& p = draw.one_of(parameters);
      plan.sharding[p.name] = std::to_string(draw.below(std::ssize(p.shape))) + ":tp";
    }
    std::string text = "seed " + std::to_string(seed) + ": " + plan.mesh + " zero=" + std::to_string(plan.zero);
    for (const auto& [name, dimension] : plan.sharding) text.append(" ").append(name).append("=").append(dimension);
    SCOPED_TRACE(text);
    try {
      const Trained sharded = trained_by(tri::Trainer{model, model.data(), options, plan});
      expect_alike(trained_by(tri::Trainer{model, model.data(), options}), sharded);
      ++trained;
    } catch (const tri::Error& e) {
      EXPECT_EQ(e.kind(), tri::Error::Kind::request) << e.message();
    }
  }
  EXPECT_GE(2 * trained, count) << "too many were refused";
}

// Networks with skips: several tensors go on from layer to layer, and stages pass on those that a later one reads.
TEST(OwnModels, StagesAreCutAcrossSkips) {
  const auto mixed = [](const tri::Builder& k, const tri::Value& x) {
    return x + linear(k.scope("down"),
                      gelu(linear(k.scope("up"), rms_norm(k.scope("norm"), x), 14, {.deviation = 0.3})),
                      x.shape().back(), {.deviation = 0.3});
  };
  // Every block also reads what the first one does.
  const auto from_the_first = [mixed](tri::Builder& b, const tri::Batch& in) {
    const tri::Value first = linear(b.scope("first"), in["x"], 8, {.deviation = 0.5});
    tri::Value x = first;
    for (int i = 0; i < 6; ++i) x = mixed(b.scope("blocks", i), x + 0.3 * first);
    const tri::Value y = linear(b.scope("out"), x, 5, {.deviation = 0.3});
    return in.predicting ? y : squared_error(b, y, in["y"]);
  };
  // The first block down with the last one up, and so on.
  const auto u_net = [mixed](tri::Builder& b, const tri::Batch& in) {
    tri::Value x = linear(b.scope("first"), in["x"], 8, {.deviation = 0.5});
    std::vector<tri::Value> skips;
    skips.reserve(3);
    for (int i = 0; i < 3; ++i) skips.push_back(x = mixed(b.scope("down", i), x));
    for (int i = 0; i < 3; ++i) {
      const tri::Builder k = b.scope("up", i);
      const tri::Value both = tri::concat({x, skips[static_cast<std::size_t>(2 - i)]}, 2);
      x = mixed(k, linear(k.scope("both"), both, 8, {.deviation = 0.3}));
    }
    const tri::Value y = linear(b.scope("out"), x, 5, {.deviation = 0.3});
    return in.predicting ? y : squared_error(b, y, in["y"]);
  };
  Draw draw(1);
  const tri::Data data = DrawnModel(draw).data();
  const tri::TrainOptions options = four_steps();
  int number = 0;
  for (const tri::Model& model : {tri::Model(from_the_first), tri::Model(u_net)}) {
    const Trained one = trained_by(tri::Trainer{model, data, options});
    ++number;
    struct Way {
      const char* mesh;
      const char* pipeline;
      const char* remat;
    };
    for (const auto& [mesh, pipeline, remat] : std::vector<Way>{{"pp=2", "1f1b", "none"},
                                                                {"pp=3", "1f1b", "none"},
                                                                {"pp=3", "zero-bubble", "full"},
                                                                {"pp=2", "interleaved:3", "none"},
                                                                {"pp=2,tp=2", "gpipe", "full"},
                                                                {"pp=3,dp=3", "1f1b", "optimal"}}) {
      SCOPED_TRACE(std::to_string(number) + " " + mesh + " " + pipeline + " " + remat);
      tri::Plan plan;
      plan.mesh = mesh;
      plan.pipeline = pipeline;
      plan.remat = remat;
      if (plan.mesh.find("tp") != std::string::npos) plan.sharding["*.up.weight"] = "out:tp";
      tri::TrainOptions own = options;
      if (std::string(mesh).find("dp=3") != std::string::npos) own.micro_batch = 1;
      // No stage has all blocks, and each has about its share of the weights.
      tri::Trainer trainer{model, data, own, plan};
      std::size_t most = 0, least = static_cast<std::size_t>(-1);
      for (const auto& rank : trainer.memory().ranks) {
        most = std::max<std::size_t>(most, rank.categories.at("weights"));
        least = std::min<std::size_t>(least, rank.categories.at("weights"));
      }
      EXPECT_LE(most, 2 * least);
      expect_alike(one, trained_by(std::move(trainer)));
    }
    // Layer by layer, as they are numbered.
    tri::Plan listed;
    listed.mesh = "pp=3";
    listed.stages = {1, 2, 3};
    expect_alike(one, trained_by(tri::Trainer{model, data, options, listed}));
  }
}

// A value that nobody reads, of a parameter that a stage before has, is made by none of them.
TEST(OwnModels, WhatNobodyReadsIsLeftOut) {
  const auto model = [](bool unread, bool layer) {
    return tri::Model([unread, layer](tri::Builder& b, const tri::Batch& in) {
      tri::Value x = linear(b.scope("first"), in["x"], 8, {.deviation = 0.5});
      const tri::Value scale = b.parameter("scale", {6, 8}, tri::Init::normal(0.3));
      x = x * mean(scale, 0);
      for (int i = 0; i < 4; ++i) x = x + linear(b.scope("blocks", i), gelu(x), 8, {.deviation = 0.3});
      if (unread) mean(transpose(scale, 0, 1), 1);
      if (layer) linear(b.scope("unread"), x, 3);
      const tri::Value y = linear(b.scope("out"), x, 5, {.deviation = 0.3});
      return in.predicting ? y : squared_error(b, y, in["y"]);
    });
  };
  Draw draw(1);
  const tri::Data data = DrawnModel(draw).data();
  const tri::TrainOptions options = four_steps();
  const Trained one = trained_by(tri::Trainer{model(false, false), data, options});
  for (const char* mesh : {"dp=1", "pp=2", "pp=3", "pp=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    expect_alike(one, trained_by(tri::Trainer{model(true, false), data, options, {.mesh = mesh}}));
  }
  try {
    const tri::Trainer trainer{model(false, true), data, options};
    ADD_FAILURE() << "a parameter without a gradient was accepted";
  } catch (const tri::Error& e) {
    EXPECT_EQ(e.kind(), tri::Error::Kind::request);
    EXPECT_NE(e.message().find("the loss does not depend on parameter 'unread."), std::string::npos) << e.message();
  }
}

// Five samples are held out, and the largest micro-batch has twelve rows: each sample counts once, also in a loss that
// does not go through the targets, or not alone.
TEST(OwnModels, HeldOutSamplesCountOnceEach) {
  const auto hidden = [](tri::Builder& b, const tri::Batch& in) {
    return embedding(b.scope("embed"), in.tokens, 11, 8, 0.5);
  };
  const auto spread = [hidden](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = hidden(b, in);
    const tri::Value error = linear(b.scope("out"), gelu(x), 8, {.deviation = 0.3}) - x;
    return in.predicting ? error : batch_mean(b, error * error);
  };
  const auto with_auxiliary = [hidden](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = hidden(b, in);
    const tri::Value logits = linear(b.scope("out"), gelu(x), 11, {.deviation = 0.3});
    return in.predicting ? logits : cross_entropy(b, logits, in.targets) + 0.1 * batch_mean(b, x * x);
  };
  const auto classified = [hidden](tri::Builder& b, const tri::Batch& in) {
    return linear_cross_entropy(b.scope("out"), hidden(b, in), in.targets, 11, 0.3);
  };
  const auto data =
      tri::own_tokens(50,
                      [](std::int64_t i, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
                        for (std::size_t p = 0; p < tokens.size(); ++p) {
                          tokens[p] = static_cast<std::int32_t>((5 * i + static_cast<std::int64_t>(p * p)) % 11);
                          targets[p] = static_cast<std::int32_t>((3 * i + static_cast<std::int64_t>(p)) % 11);
                        }
                      },
                      {.vocab = 11, .context = 6, .order = "sequential", .holdout = 0.1});
  int kind = 0;
  for (const tri::Model& model : {tri::Model(spread), tri::Model(with_auxiliary), tri::Model(classified)}) {
    const auto held_out = [&](const char* mesh, std::int64_t micro) {
      tri::TrainOptions options = plain_sgd(2);
      options.batch = 12;
      options.micro_batch = micro;
      tri::Trainer t{model, data, options, {.mesh = mesh}};
      return t.run().eval_loss.value();
    };
    const double expected = held_out("dp=1", 1);  // of one sample at a time
    for (const auto& [mesh, micro] : std::vector<std::pair<const char*, std::int64_t>>{
             {"dp=1", 2}, {"dp=1", 4}, {"dp=1", 12}, {"dp=2", 6}, {"dp=3", 4}, {"pp=2", 4}})
      EXPECT_NEAR(held_out(mesh, micro), expected, 1e-5 * (1 + expected))
          << "model " << kind << ", " << mesh << " " << micro;
    ++kind;
  }
}

}  // namespace
