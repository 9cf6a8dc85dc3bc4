// Inputs with values that no step can be taken with.
#include <gtest/gtest.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "support/library.h"
#include "support/prices.h"

namespace {

using trireme::testing::declared;
using trireme::testing::deep_model;
using trireme::testing::expect_part;
using trireme::testing::kFeatures;
using trireme::testing::kKinds;
using trireme::testing::linear_model;
using trireme::testing::plain_sgd;
using trireme::testing::refusal;
using trireme::testing::rows;
using trireme::testing::weighted_loss;
using trireme::testing::write_sample;
using trireme::testing::write_scale;

namespace fs = std::filesystem;

// Of the second step, whose samples are 8 to 15; by the sample's place in the batch and in the data.
TEST(OwnInputs, WhatIsNotFiniteIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto failure = [](const tri::WriteInputs& write, const tri::WriteInputs& whole, const tri::Plan& plan) {
    tri::TrainOptions options = plain_sgd(4);
    options.micro_batch = plan.mesh == "dp=2" ? 2 : 4;
    tri::Trainer t{deep_model, tri::own_inputs(40, declared(), write, {.order = "sequential", .whole = whole}), options,
                   plan};
    return refusal([&] { t.run(); }, tri::Error::Kind::failure);
  };
  const std::map<std::string, std::string> sharded = {{"*.up.weight", "out:tp"}};
  for (const tri::Plan& plan : std::vector<tri::Plan>{{},
                                                      {.mesh = "dp=2"},
                                                      {.mesh = "pp=2"},
                                                      {.mesh = "tp=2", .sharding = sharded},
                                                      {.mesh = "dp=2", .server = "sync"},
                                                      {.mesh = "dp=2", .server = "ssp:1"},
                                                      {.mesh = "pp=2", .pipeline = "pipedream"}}) {
    SCOPED_TRACE(plan.mesh + " " + plan.server + plan.pipeline);
    expect_part(failure(
                    [&](std::int64_t i, tri::Sample& to) {
                      write_sample(i, to);
                      if (i == 11) to.floats("features")[2] = nan;
                    },
                    write_scale, plan),
                "; input 'features', sample 3 of the batch (sample 11 of the training data), element 2 is NaN; ");
    expect_part(failure(
                    [&](std::int64_t i, tri::Sample& to) {
                      write_sample(i, to);
                      if (i == 14) to.floats("price")[0] = -inf;
                    },
                    write_scale, plan),
                "; input 'price', sample 6 of the batch (sample 14 of the training data), element 0 is -inf; ");
    expect_part(failure(
                    write_sample,
                    [&](std::int64_t step, tri::Sample& to) {
                      write_scale(step, to);
                      if (step == 1) to.floats("scale")[3] = inf;
                    },
                    plan),
                "; input 'scale', the same for all samples, element 3 is +inf; ");
  }
}

// A scale that falls mends no value of the batch. The step was counted as skipped, so what follows it can be trained.
TEST(OwnInputs, WhatIsNotFiniteIsNoOverflow) {
  const fs::path folder = fs::temp_directory_path() / ("trireme_no_overflow_" + std::to_string(::getpid()));
  const auto write = [](std::int64_t i, tri::Sample& to) {
    write_sample(i, to);
    if (i == 11) to.floats("features")[2] = std::numeric_limits<float>::quiet_NaN();
  };
  for (const tri::Plan& plan : std::vector<tri::Plan>{{},
                                                      {.mesh = "dp=2"},
                                                      {.mesh = "pp=2"},
                                                      {.mesh = "dp=2", .server = "sync"},
                                                      {.mesh = "dp=2", .server = "ssp:1"}}) {
    SCOPED_TRACE(plan.mesh + " " + plan.server);
    const bool together = plan.server != "ssp:1";
    fs::remove_all(folder);
    tri::TrainOptions options = plain_sgd(5);
    options.optimizer = "adamw";
    options.precision = "fp16";
    options.loss_scale = 64;
    options.micro_batch = 4;
    if (together) options.dir = folder.string();
    tri::Trainer t{deep_model, tri::own_inputs(40, declared(), write, {.order = "sequential", .whole = write_scale}),
                   options, plan};
    const std::string first = refusal([&] { t.run(); }, tri::Error::Kind::failure);
    expect_part(first,
                "; input 'features', sample 3 of the batch (sample 11 of the training data), element 2 is NaN; ");
    EXPECT_EQ(first.find("scale"), std::string::npos) << first;
    if (!together) continue;
    expect_part(first, "; the state after it is saved as step 2 in ");
    const tri::Metrics last = t.run();
    EXPECT_EQ(last.step, 5);
    EXPECT_TRUE(std::isfinite(last.loss)) << last.loss;
    for (const float value : t.values("out.weight")) EXPECT_TRUE(std::isfinite(value));
  }
  fs::remove_all(folder);
}

// An input may well be infinite, as masks are, in a step whose gradients alone overflow.
TEST(OwnInputs, AnOverflowIsNotBlamedOnThem) {
  const auto masked = [](tri::Builder& b, const tri::Batch& in) {
    return weighted_loss(b, in, linear(b.scope("out"), relu(in["features"]), 1, {.deviation = 0.3}));
  };
  const auto write = [](std::int64_t i, tri::Sample& to) {
    write_sample(i, to);
    to.floats("features")[3] = -std::numeric_limits<float>::infinity();
  };
  tri::TrainOptions options = plain_sgd(10);
  options.precision = "fp16";
  options.loss_scale = 1 << 20;
  for (const char* server : {"none", "ssp:1"}) {
    tri::Trainer t{masked,
                   tri::own_inputs(40, declared(), write, {.whole = write_scale}),
                   options,
                   {.mesh = "dp=2", .server = server}};
    int skipped = 0;
    t.on_step([&](const tri::Metrics& m) {
      skipped += m.skipped ? 1 : 0;
      EXPECT_TRUE(std::isfinite(m.loss));
      return tri::Next::go;
    });
    EXPECT_EQ(t.run().step, 10);
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 10);
  }
}

// Of 40 samples the last 11 are held out. A run goes on without their loss; who asks for it gets an error.
TEST(OwnInputs, WhatIsHeldOutAndNotFiniteIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct Case {
    std::int64_t sample;  // -1: the scale that evaluations after the last step read
    std::string named;
    std::int64_t batches = 32;
  };
  const std::vector<Case> cases = {{36, "held-out sample 7: input 'features', element 2 is NaN"},
                                   {39, "held-out sample 10: input 'features', element 2 is NaN"},
                                   // Eight of the eleven are looked at.
                                   {38, "held-out sample 9: input 'features', element 2 is NaN", 1},
                                   {-1, "held-out data: input 'scale', the same for all samples, element 3 is +inf"}};
  for (const char* mesh : {"dp=1", "dp=2", "pp=2"})
    for (const std::int64_t micro : {0, 1})
      for (const Case& c : cases) {
        SCOPED_TRACE(std::string(mesh) + ", " + std::to_string(micro) + ", " + c.named);
        const auto write = [&](std::int64_t i, tri::Sample& to) {
          write_sample(i, to);
          if (i == c.sample) to.floats("features")[2] = nan;
        };
        const auto whole = [&](std::int64_t step, tri::Sample& to) {
          write_scale(step, to);
          if (c.sample < 0 && step == 3) to.floats("scale")[3] = inf;
        };
        tri::TrainOptions options = plain_sgd(3);
        options.micro_batch = micro;
        options.eval_every = 1;
        std::vector<std::string> warnings;
        options.log = [&](tri::LogLevel level, const std::string& text) {
          if (level == tri::LogLevel::warning) warnings.push_back(text);
        };
        const tri::OwnInputOptions data = {.order = "sequential", .holdout = 11.0 / 40, .whole = whole};
        tri::Trainer t{linear_model, tri::own_inputs(40, declared(), write, data), options, {.mesh = mesh}};
        EXPECT_FALSE(std::isfinite(t.run().eval_loss.value()));
        const std::string expected = "the held-out loss is not finite: " + c.named;
        EXPECT_EQ(warnings, std::vector<std::string>{expected + "; training goes on"});
        EXPECT_EQ(refusal([&] { t.evaluate(c.batches); }, tri::Error::Kind::failure), expected);
      }
}

TEST(OwnInputs, WhatNobodyReadsIsNotBlamed) {
  const auto reads_no_weights = [](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = linear(b.scope("out"), in["features"], 1, {.deviation = 1e30});
    tri::Value predicted = reshape(x, {x.shape()[0]});
    if (in.predicting) return predicted;
    const tri::Value error = predicted - in["price"];
    return batch_mean(b, error * error);
  };
  const auto write = [](std::int64_t i, tri::Sample& to) {
    write_sample(i, to);
    to.floats("weights_per_row")[0] = std::numeric_limits<float>::quiet_NaN();
  };
  tri::Trainer t{reads_no_weights, tri::own_inputs(40, declared(), write, {.whole = write_scale}), plain_sgd(1)};
  expect_part(refusal([&] { t.run(); }, tri::Error::Kind::failure), "the first tensor to go bad is '");
}

// Where they are read they are named, before any rank has them; the state before is saved.
TEST(OwnInputs, IndicesOutOfRangeAreNamed) {
  const fs::path folder = fs::temp_directory_path() / ("trireme_bad_index_" + std::to_string(::getpid()));
  const std::map<std::string, std::string> sharded = {{"kinds.weight", "vocab:tp"}};
  for (const tri::Plan& plan : std::vector<tri::Plan>{{},
                                                      {.mesh = "dp=2"},
                                                      {.mesh = "pp=2"},
                                                      {.mesh = "tp=2", .sharding = sharded},
                                                      {.mesh = "dp=2", .server = "sync"},
                                                      {.mesh = "dp=2", .server = "ssp:1"},
                                                      {.mesh = "pp=2", .pipeline = "pipedream"}})
    for (const std::int32_t wrong : {static_cast<std::int32_t>(kKinds), -1}) {
      SCOPED_TRACE(plan.mesh + " " + plan.server + plan.pipeline);
      fs::remove_all(folder);
      tri::TrainOptions options = plain_sgd(6);
      options.micro_batch = 2;
      options.lr = 0.005;
      options.dir = folder.string();
      const auto write = [&](std::int64_t i, tri::Sample& to) {
        write_sample(i, to);
        if (i == 35) to.integers("kind")[0] = wrong;
      };
      tri::Trainer t{deep_model, tri::own_inputs(40, declared(), write, {.order = "sequential", .whole = write_scale}),
                     options, plan};
      const std::string said = refusal([&] { t.run(); }, tri::Error::Kind::failure);
      expect_part(said, "sample 35: input 'kind', element 0 is " + std::to_string(wrong) + ", and must be from 0 to 4");
      if (plan.server == "none" && plan.pipeline != "pipedream")
        expect_part(said, "; the state before it is saved as step 4 in ");
    }
  fs::remove_all(folder);
}

// A loss leaves negative ones out.
TEST(OwnInputs, ClassesOutOfRangeAreNamed) {
  const std::vector<tri::Input> inputs = {
      {.name = "features", .shape = {kFeatures}},
      {.name = "class", .shape = {2}, .type = tri::Input::Type::i32, .target = true}};
  for (const bool fused : {false, true}) {
    const auto model = [&](tri::Builder& b, const tri::Batch& in) {
      const tri::Value x = linear(b.scope("in"), in["features"], 16, {.deviation = 0.3});
      const tri::Value both = reshape(x, {2 * x.shape()[0], 8});
      const tri::Value classes = in.predicting ? in["class"] : reshape(in["class"], {2 * x.shape()[0]});
      if (fused) return linear_cross_entropy(b.scope("out"), both, classes, kKinds);
      return cross_entropy(b, linear(b.scope("out"), both, kKinds), classes);
    };
    const auto write = [&](std::int64_t i, tri::Sample& to) {
      for (float& value : to.floats("features")) value = 1;
      to.integers("class")[0] = -1;
      to.integers("class")[1] = static_cast<std::int32_t>(i == 36 ? 7 : i % kKinds);
    };
    tri::Trainer t{model, tri::own_inputs(40, inputs, write, {.order = "sequential", .holdout = 0.25}), plain_sgd(3)};
    for (const auto& look : std::vector<std::function<void()>>{[&] { t.evaluate(); }, [&] { t.run(); }})
      expect_part(refusal(look, tri::Error::Kind::failure),
                  "held-out sample 6: input 'class', element 1 is 7, and must be at most 4");
  }
}

// What is given to a prediction, which can be asked for again.
TEST(OwnInputs, BadValuesOfAPredictionAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* mesh : {"dp=1", "dp=2", "pp=2"}) {
    tri::Trainer t{linear_model, rows(), plain_sgd(3), {.mesh = mesh}};
    const std::vector<float> ones(kFeatures, 1);
    const tri::NamedInputs good = {{"features", ones}, {"kind", std::vector<std::int32_t>{2}}, {"scale", ones}};
    const std::vector<float> predicted = t.forward_inputs(good);
    const auto changed = [&](const std::string& name, const tri::InputValues& values) {
      tri::NamedInputs other = good;
      other[name] = values;
      return refusal([&] { t.forward_inputs(other); });
    };
    EXPECT_EQ(changed("features", std::vector<float>{1, nan, 1, nan}),
              "forward_inputs: the prediction is not finite: input 'features', element 1 is NaN");
    EXPECT_EQ(changed("scale", std::vector<float>{1, 1, std::numeric_limits<float>::infinity(), 1}),
              "forward_inputs: the prediction is not finite: input 'scale', element 2 is +inf");
    EXPECT_EQ(changed("kind", std::vector<std::int32_t>{5}),
              "forward_inputs: input 'kind', element 0 is 5, and must be from 0 to 4");
    EXPECT_EQ(t.forward_inputs(good), predicted);
    // The loss alone reads it.
    tri::NamedInputs more = good;
    more["weights_per_row"] = std::vector<float>{nan};
    EXPECT_EQ(t.forward_inputs(more), predicted);
    // A model that has gone bad predicts what it does.
    t.set_values("out.bias", {nan});
    EXPECT_TRUE(std::isnan(t.forward_inputs(good).front()));
  }
}

}  // namespace
