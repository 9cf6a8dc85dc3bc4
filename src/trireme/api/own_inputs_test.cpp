// Inputs that a model reads by names of its own.
#include <gtest/gtest.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "support/library.h"
#include "support/prices.h"

namespace {

using trireme::testing::declared;
using trireme::testing::deep_model;
using trireme::testing::expect_part;
using trireme::testing::feature;
using trireme::testing::kFeatures;
using trireme::testing::kind;
using trireme::testing::linear_model;
using trireme::testing::losses;
using trireme::testing::plain_sgd;
using trireme::testing::price;
using trireme::testing::refusal;
using trireme::testing::rows;
using trireme::testing::scale;
using trireme::testing::weight;
using trireme::testing::weighted_loss;
using trireme::testing::write_sample;
using trireme::testing::write_scale;

namespace fs = std::filesystem;

// linear_model by hand, in f64.
struct ByHand {
  std::vector<double> w, kinds;
  double bias = 0;

  double predict(std::int64_t i, std::int64_t step) const {
    double sum = bias + kinds[static_cast<std::size_t>(kind(i))];
    for (std::int64_t j = 0; j < kFeatures; ++j)
      sum += w[static_cast<std::size_t>(j)] * static_cast<double>(feature(i, j) * scale(step, j));
    return sum;
  }
  double loss(std::int64_t first, std::int64_t last, std::int64_t step) const {
    double sum = 0;
    for (std::int64_t i = first; i < last; ++i)
      sum += static_cast<double>(weight(i)) * std::pow(predict(i, step) - static_cast<double>(price(i)), 2);
    return sum / static_cast<double>(last - first);
  }
  void update(std::int64_t first, std::int64_t last, std::int64_t step, double lr) {
    ByHand next = *this;
    for (std::int64_t i = first; i < last; ++i) {
      const double slope = 2 * static_cast<double>(weight(i)) * (predict(i, step) - static_cast<double>(price(i))) /
                           static_cast<double>(last - first);
      next.bias -= lr * slope;
      next.kinds[static_cast<std::size_t>(kind(i))] -= lr * slope;
      for (std::int64_t j = 0; j < kFeatures; ++j)
        next.w[static_cast<std::size_t>(j)] -= lr * slope * static_cast<double>(feature(i, j) * scale(step, j));
    }
    *this = next;
  }
};

ByHand start_of(tri::Trainer& t) {
  const std::vector<float> w = t.values("out.weight"), kinds = t.values("kinds.weight");
  return {{w.begin(), w.end()}, {kinds.begin(), kinds.end()}, t.values("out.bias").front()};
}

void expect_trains_as_by_hand(tri::Trainer t, std::int64_t steps) {
  ByHand hand = start_of(t);
  const std::vector<double> measured = losses(t);
  ASSERT_EQ(std::ssize(measured), steps);
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int64_t first = s * 8 % 40;
    EXPECT_NEAR(measured[static_cast<std::size_t>(s)], hand.loss(first, first + 8, s), 1e-5) << "step " << s;
    hand.update(first, first + 8, s, 0.05);
  }
  const std::vector<float> w = t.values("out.weight"), kinds = t.values("kinds.weight");
  for (std::size_t j = 0; j < w.size(); ++j) EXPECT_NEAR(w[j], hand.w[j], 1e-5) << "weight " << j;
  for (std::size_t j = 0; j < kinds.size(); ++j) EXPECT_NEAR(kinds[j], hand.kinds[j], 1e-5) << "kind " << j;
}

TEST(OwnInputs, TrainAsByHand) {
  expect_trains_as_by_hand({linear_model, rows(), plain_sgd(10)}, 10);
  tri::TrainOptions cut = plain_sgd(10);
  cut.micro_batch = 2;
  expect_trains_as_by_hand({linear_model, rows(), cut}, 10);
}

// The model's weight and bias have a single row each, which ZeRO cannot shard.
TEST(OwnInputs, EveryRankHasItsRows) {
  for (const char* mesh : {"dp=2", "dp=4"})
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(mesh) + ", ZeRO-" + std::to_string(zero));
      expect_trains_as_by_hand({linear_model, rows(), plain_sgd(10), {.mesh = mesh, .zero = zero}}, 10);
    }
}

TEST(OwnInputs, MeshesTrainLikeOneRank) {
  tri::TrainOptions options = plain_sgd(6);
  options.optimizer = "adamw";
  options.lr = 3e-3;
  tri::Trainer one{deep_model, rows(), options};
  const std::vector<double> expected = losses(one);
  const std::map<std::string, std::string> sharded = {{"*.up.weight", "out:tp"}};
  const std::vector<tri::Plan> plans = {{.mesh = "dp=2"},
                                        {.mesh = "dp=2", .zero = 1},
                                        {.mesh = "dp=2", .zero = 3},
                                        {.mesh = "pp=2"},
                                        {.mesh = "pp=2,dp=2", .zero = 1},
                                        {.mesh = "tp=2", .sharding = sharded},
                                        {.mesh = "tp=2", .sharding = {{"features", "feature:tp"}}},
                                        {.mesh = "pp=2,tp=2", .sharding = sharded},
                                        {.mesh = "dp=2", .server = "sync"},
                                        {.remat = "full"}};
  for (const tri::Plan& plan : plans) {
    SCOPED_TRACE(plan.mesh + " zero " + std::to_string(plan.zero) + " " + plan.server + plan.remat);
    tri::Trainer t{deep_model, rows(), options, plan};
    const std::vector<double> all = losses(t);
    ASSERT_EQ(all.size(), expected.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], expected[i], 2e-6 * (1 + expected[i]));
    for (const tri::Parameter& p : one.parameter_list()) {
      const std::vector<float> own = t.values(p.name), theirs = one.values(p.name);
      ASSERT_EQ(own.size(), theirs.size());
      double worst = 0;
      for (std::size_t i = 0; i < own.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(own[i]) - static_cast<double>(theirs[i])));
      EXPECT_LT(worst, 2e-5) << p.name;
    }
  }
}

// Photographs with a mask of their pixels, of sizes that ranks do not divide.
tri::Value masked_photographs(tri::Builder& b, const tri::Batch& in) {
  tri::Value x = in["photo"] * in["mask"];
  for (int i = 0; i < 2; ++i) {
    const tri::Builder k = b.scope("convs", i);
    x = relu(conv(k, x, 6, {.kernel = 3, .stride = 1 + i, .padding = 1}));
  }
  tri::Value predicted = linear(b.scope("out"), global_avg_pool(x), 1, {.deviation = 0.3});
  if (in.predicting) return predicted;
  const tri::Value error = reshape(predicted, {predicted.shape()[0]}) - in["price"];
  return batch_mean(b, error * error);
}

tri::Data photographs() {
  const std::vector<tri::Input> inputs = {
      {.name = "photo", .shape = {9, 7, 3}}, {.name = "mask", .shape = {9, 7, 3}}, {.name = "price", .target = true}};
  const auto write = [](std::int64_t i, tri::Sample& to) {
    for (std::int64_t p = 0; p < 9 * 7 * 3; ++p) {
      to.floats("photo")[static_cast<std::size_t>(p)] = static_cast<float>((5 * i + 11 * p + i * p) % 17) / 8 - 1;
      to.floats("mask")[static_cast<std::size_t>(p)] = static_cast<float>((p + i) % 4 != 0);
    }
    to.floats("price")[0] = price(i);
  };
  return own_inputs(40, inputs, write, {.order = "sequential", .holdout = 0});
}

// A convolution of one picture of 9 × 7 with three channels, in plain loops.
std::vector<float> convolved(const std::vector<float>& x, const std::vector<float>& weight, std::int64_t out,
                             const tri::ConvOptions& o) {
  constexpr std::int64_t kHeight = 9, kWidth = 7, kChannels = 3;
  const std::int64_t reach = o.dilation * (o.kernel - 1), of_group = kChannels / o.groups;
  const std::int64_t rows = (kHeight + 2 * o.padding - reach - 1) / o.stride + 1;
  const std::int64_t columns = (kWidth + 2 * o.padding - reach - 1) / o.stride + 1;
  const auto at = [](const std::vector<float>& all, std::int64_t i) { return all[static_cast<std::size_t>(i)]; };
  std::vector<float> y;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < out; ++k) {
        double sum = 0;
        for (std::int64_t r = 0; r < o.kernel; ++r)
          for (std::int64_t s = 0; s < o.kernel; ++s)
            for (std::int64_t c = 0; c < of_group; ++c) {
              const std::int64_t h = i * o.stride - o.padding + r * o.dilation;
              const std::int64_t w = j * o.stride - o.padding + s * o.dilation;
              if (h < 0 || h >= kHeight || w < 0 || w >= kWidth) continue;
              const std::int64_t from = k / (out / o.groups) * of_group + c;
              sum += static_cast<double>(at(x, (h * kWidth + w) * kChannels + from)) *
                     static_cast<double>(at(weight, ((k * o.kernel + r) * o.kernel + s) * of_group + c));
            }
        y.push_back(static_cast<float>(sum));
      }
  return y;
}

TEST(OwnInputs, ConvolutionsHaveDilationAndGroups) {
  constexpr std::int64_t kOut = 6;
  for (const tri::ConvOptions& o :
       std::vector<tri::ConvOptions>{{}, {.dilation = 2}, {.groups = 3}, {.stride = 2, .dilation = 3, .groups = 3}}) {
    SCOPED_TRACE("dilation " + std::to_string(o.dilation) + ", groups " + std::to_string(o.groups));
    const auto model = [&](tri::Builder& b, const tri::Batch& in) {
      const tri::Value y = conv(b.scope("conv"), in["photo"], kOut, o);
      tri::Value flat = reshape(y, {y.shape()[0], y.shape()[1] * y.shape()[2] * y.shape()[3]});
      if (in.predicting) return flat;
      const tri::Value error = linear(b.scope("out"), flat, 1) - reshape(in["price"], {flat.shape()[0], 1});
      return batch_mean(b, error * error);
    };
    tri::Trainer t{model, photographs(), plain_sgd(3)};
    std::vector<float> photo(9 * 7 * 3);
    for (std::size_t i = 0; i < photo.size(); ++i) photo[i] = static_cast<float>(i % 13) / 7 - 1;
    const std::vector<float> got = t.forward_inputs({{"photo", photo}, {"mask", std::vector<float>(photo.size(), 1)}});
    const std::vector<float> expected = convolved(photo, t.values("conv.weight"), kOut, o);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
    t.run();
  }
}

TEST(OwnInputs, AreShardedAsTheirAnnotationsSay) {
  const tri::TrainOptions options = plain_sgd(6);
  tri::Trainer one{masked_photographs, photographs(), options};
  const std::vector<double> expected = losses(one);
  const std::map<std::string, std::string> height = {{"photo", "batch:dp,height:h"}, {"mask", "batch:dp,1:h"}};
  const std::map<std::string, std::string> both = {{"photo", "height:h,width:w"}};
  for (const tri::Plan& plan : {tri::Plan{.mesh = "h=2", .sharding = height},
                                {.mesh = "h=2", .sharding = {{"photo", "height:h"}}},
                                {.mesh = "dp=2,h=3", .zero = 2, .sharding = height},
                                {.mesh = "h=2,w=2", .sharding = both},
                                {.mesh = "tp=2", .sharding = {{"convs.0.weight", "out:tp"}}}}) {
    SCOPED_TRACE(plan.mesh + " " + plan.sharding.begin()->second);
    tri::Trainer t{masked_photographs, photographs(), options, plan};
    const std::vector<double> all = losses(t);
    ASSERT_EQ(all.size(), expected.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], expected[i], 2e-6 * (1 + expected[i]));
  }
  expect_part(refusal([] {
                tri::Trainer{deep_model, rows(), plain_sgd(1), {.mesh = "tp=2", .sharding = {{"scale", "feature:tp"}}}};
              }),
              "of which every rank has all");
  expect_part(refusal([&] {
                tri::Trainer{masked_photographs, photographs(), options, {.mesh = "h=2"}};
              }),
              "parallel.sharding, \"photo\" = \"height:h\"");
}

TEST(OwnInputs, InLowPrecisionAreRounded) {
  tri::TrainOptions options = plain_sgd(8);
  tri::Trainer exact{deep_model, rows(), options};
  options.precision = "bf16";
  tri::Trainer rounded{deep_model, rows(), options, {.mesh = "dp=2"}};
  const std::vector<double> expected = losses(exact), all = losses(rounded);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], expected[i], 0.02 * expected[i]) << "step " << i;
  EXPECT_NE(all, expected);
}

// Eleven rows are held out, and batches have eight: each counts once. The same in one piece and on two ranks.
TEST(OwnInputs, HeldOutRowsCountOnceEach) {
  for (const char* mesh : {"dp=1", "dp=2", "pp=2"})
    for (const std::int64_t micro : {0, 1}) {
      tri::TrainOptions options = plain_sgd(3);
      options.micro_batch = micro;
      tri::Trainer t{linear_model, rows(40, 11.0 / 40), options, {.mesh = mesh}};
      EXPECT_NEAR(t.evaluate().value(), start_of(t).loss(29, 40, 0), 1e-5) << mesh << " " << micro;
      const double after = t.run().eval_loss.value();
      EXPECT_NEAR(after, start_of(t).loss(29, 40, 3), 1e-5) << mesh << " " << micro;  // by the scale of update 3
    }
}

TEST(OwnInputs, ForwardByName) {
  for (const char* mesh : {"dp=1", "dp=2", "pp=2"}) {
    tri::Trainer t{linear_model, rows(), plain_sgd(3), {.mesh = mesh}};
    t.run();
    std::vector<float> features(kFeatures), scales(kFeatures);
    for (std::int64_t j = 0; j < kFeatures; ++j) {
      features[static_cast<std::size_t>(j)] = feature(13, j);
      scales[static_cast<std::size_t>(j)] = scale(2, j);
    }
    const std::vector<std::int32_t> kinds = {kind(13)};
    const std::vector<float> weights = {1};
    tri::NamedInputs all = {{"features", features}, {"kind", kinds}, {"scale", scales}};
    const std::vector<float> predicted = t.forward_inputs(all);
    ASSERT_EQ(predicted.size(), 1U);
    EXPECT_NEAR(predicted[0], start_of(t).predict(13, 2), 1e-5);
    // The loss alone reads it: it need not be given, and may be.
    all["weights_per_row"] = weights;
    EXPECT_EQ(t.forward_inputs(all), predicted);

    const auto changed = [&](const std::string& name, const tri::InputValues& values) {
      tri::NamedInputs other = all;
      other[name] = values;
      return refusal([&] { t.forward_inputs(other); });
    };
    expect_part(changed("featurs", features), "did you mean 'features'?");
    expect_part(changed("price", weights), "no input 'price'");
    expect_part(changed("kind", weights), "'kind' is i32[]");
    expect_part(changed("scale", weights), "4 numbers, got 1");
    expect_part(refusal([&] { t.forward_inputs({{"features", features}}); }), "'kind', i32[], is missing");
    expect_part(refusal([&] { t.forward(kinds); }), "such as 'features'; see forward_inputs");
    expect_part(refusal([&] { t.generate_tokens({1}); }), "does not predict tokens");
  }
}

TEST(OwnInputs, FromMemoryAsFromAFunction) {
  std::vector<float> features, weights, prices, scales;
  std::vector<std::int32_t> kinds;
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < kFeatures; ++j) features.push_back(feature(i, j));
    kinds.push_back(kind(i));
    weights.push_back(weight(i));
    prices.push_back(price(i));
  }
  for (std::int64_t j = 0; j < kFeatures; ++j) scales.push_back(scale(0, j));
  const auto in_memory = [&] {
    return std::vector<tri::InputInMemory>{{.name = "features", .values = features, .shape = {kFeatures}},
                                           {.name = "kind", .values = kinds},
                                           {.name = "weights_per_row", .values = weights},
                                           {.name = "price", .values = prices, .target = true},
                                           {.name = "scale", .values = scales, .shape = {kFeatures}, .whole = true}};
  };
  const auto constant = [](std::int64_t, tri::Sample& to) { write_scale(0, to); };
  tri::Trainer memory{linear_model, tri::inputs_in_memory(in_memory()), plain_sgd(6)};
  tri::Trainer function{linear_model, tri::own_inputs(40, declared(), write_sample, {.whole = constant}), plain_sgd(6)};
  EXPECT_EQ(losses(memory), losses(function));

  const auto refused = [&](const std::function<void(std::vector<tri::InputInMemory>&)>& change) {
    return refusal([&] {
      auto inputs = in_memory();
      change(inputs);
      tri::Trainer(linear_model, tri::inputs_in_memory(inputs), plain_sgd(1));
    });
  };
  expect_part(refused([&](auto& in) { in[1].values = std::vector<std::int32_t>(39); }),
              "'kind' has 39 rows, and 'features' has 40");
  expect_part(refused([&](auto& in) { in[0].values = std::vector<float>(161); }), "'features' has 161 values");
  expect_part(refused([&](auto& in) { in[4].values = std::vector<float>(8); }), "'scale' has 8 values");
}

TEST(OwnInputs, ResumeGoesOnWithTheNextRows) {
  const fs::path folder = fs::temp_directory_path() / ("trireme_inputs_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  tri::TrainOptions options = plain_sgd(7);
  options.optimizer = "adamw";
  const tri::Data shuffled = tri::own_inputs(40, declared(), write_sample, {.whole = write_scale});
  tri::Trainer whole{deep_model, shuffled, options};
  const std::vector<double> expected = losses(whole);
  {
    tri::Trainer first{deep_model, shuffled, options, {.mesh = "dp=2"}};
    first.on_step([](const tri::Metrics& m) { return m.step == 3 ? tri::Next::stop : tri::Next::go; });
    first.run();
    first.save(folder.string());
  }
  tri::Trainer second{deep_model, shuffled, options, {.mesh = "pp=2"}};
  second.load(folder.string());
  const std::vector<double> rest = losses(second);
  fs::remove_all(folder);
  ASSERT_EQ(rest.size(), 4U);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], expected[i + 3], 1e-5 * (1 + expected[i + 3]));
}

TEST(OwnInputs, WhatAModelAsksForIsThere) {
  const auto refused = [](const tri::Model& model, const tri::Data& data, const tri::Plan& plan = {}) {
    return refusal([&] { tri::Trainer(model, data, plain_sgd(1), plan); });
  };
  const auto asks = [](const std::string& name) {
    return [name](tri::Builder& b, const tri::Batch& in) { return weighted_loss(b, in, in[name]); };
  };
  expect_part(refused(asks("wieghts_per_row"), rows()), "did you mean 'weights_per_row'?");
  expect_part(refused(asks("zzz"), rows()), "they have features, kind, price, scale, weights_per_row");
  expect_part(refused(asks("features"), tri::tokens_in_memory(std::vector<std::int32_t>(400), {.vocab = 5})),
              "see own_inputs");
  const auto no_loss = [](tri::Builder&, const tri::Batch& in) { return in["features"]; };
  expect_part(refused(no_loss, rows()), "must give its loss");
  expect_part(refusal([] { tri::Trainer(tri::ModelConfig{.family = "gpt2"}, rows(), plain_sgd(1)); }),
              "\"gpt2\" reads tokens or images");

  const auto declares = [&](std::vector<tri::Input> inputs, const tri::WriteInputs& whole = {}) {
    return refused(linear_model, tri::own_inputs(40, std::move(inputs), write_sample, {.whole = whole}));
  };
  expect_part(declares({}), "no inputs");
  expect_part(declares({{.name = "lr"}}), "'lr_in'");
  expect_part(declares({{.name = "a b"}}), "letters");
  expect_part(declares({{.name = "a"}, {.name = "a"}}), "two inputs");
  expect_part(declares({{.name = "a", .shape = {3, 0}}}), "[3,0]");
  expect_part(declares({{.name = "a"}, {.name = "b", .whole = true}}), "OwnInputOptions::whole");
  expect_part(declares({{.name = "b", .whole = true}}, write_scale), "one at least must go by rows");
}

TEST(OwnInputs, WhatAFunctionWritesIsChecked) {
  const auto failure = [](const tri::WriteInputs& write) {
    tri::Trainer t{linear_model, tri::own_inputs(40, declared(), write, {.order = "sequential", .whole = write_scale}),
                   plain_sgd(1)};
    return refusal([&] { t.run(); }, tri::Error::Kind::failure);
  };
  expect_part(failure([](std::int64_t i, tri::Sample& to) {
                if (i == 3) return void(to.floats("featurs"));
                write_sample(i, to);
              }),
              "sample 3: there is no input 'featurs'; did you mean 'features'?");
  expect_part(failure([](std::int64_t, tri::Sample& to) { to.floats("kind"); }), "'kind' is i32");
  expect_part(failure([](std::int64_t, tri::Sample& to) { to.floats("scale"); }), "OwnInputOptions::whole");
  expect_part(failure([](std::int64_t, tri::Sample& to) { to.floats("price"); }),
              "sample 0: nothing was written to the input 'features'");
  expect_part(failure([](std::int64_t i, tri::Sample& to) {
                write_sample(i, to);
                if (i == 3) to.integers("kind")[0] = 5;
              }),
              "sample 3: input 'kind', element 0 is 5, and must be from 0 to 4");
}

// An exception of a user's function, of any type, does not cost what was trained before.
TEST(OwnInputs, AnExceptionFromAFunctionSavesFirst) {
  const fs::path folder = fs::temp_directory_path() / ("trireme_throws_" + std::to_string(::getpid()));
  for (const bool held_out : {false, true}) {
    SCOPED_TRACE(held_out);
    fs::remove_all(folder);
    tri::TrainOptions options = plain_sgd(6);
    options.dir = folder.string();
    options.eval_every = held_out ? 2 : 0;
    std::atomic<bool> trained = false;
    const auto write = [&](std::int64_t i, tri::Sample& to) {
      if (trained && i >= (held_out ? 36 : 35)) throw std::runtime_error("the disk went away");
      write_sample(i, to);
    };
    tri::Trainer t{linear_model,
                   tri::own_inputs(40, declared(), write,
                                   {.order = "sequential", .holdout = held_out ? 0.1 : 0.0, .whole = write_scale}),
                   options};
    t.on_step([&](const tri::Metrics& m) {
      trained = m.step >= (held_out ? 3 : 1);  // what is read before a run begins is none of its work
      return tri::Next::go;
    });
    std::string said = "nothing";
    try {
      t.run();
    } catch (const tri::Error& e) {
      said = e.message();
    }
    const std::string state = held_out ? "the state" : "the state before it";
    EXPECT_EQ(said, "the disk went away; " + state + " is saved as step 4 in " + folder.string());
    EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000004"));
  }
  fs::remove_all(folder);
}

TEST(OwnInputs, OneThatNobodyReadsIsReported) {
  std::vector<tri::Input> inputs = declared();
  inputs.push_back({.name = "extra"});
  const auto write = [](std::int64_t i, tri::Sample& to) {
    write_sample(i, to);
    to.floats("extra")[0] = 1;
  };
  tri::TrainOptions options = plain_sgd(2);
  std::string logged;
  options.log = [&](tri::LogLevel, const std::string& text) { logged += text + "\n"; };
  for (const char* mesh : {"dp=1", "pp=2"}) {
    logged.clear();
    tri::Trainer t{linear_model, tri::own_inputs(40, inputs, write, {.whole = write_scale}), options, {.mesh = mesh}};
    expect_part(logged, "does not read the input 'extra'");
    EXPECT_EQ(losses(t).size(), 2U);
  }
  logged.clear();
  tri::Trainer quiet{linear_model, rows(), options};
  EXPECT_EQ(logged, "");
}

}  // namespace
