// Saved activations in bf16 and int8: the forward pass is the plain one to the bit, the gradients are those of a
// plainly written reference that rounds what it reads, and memory falls as the plan says.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/ops/quantize/quantize_int8.h"
#include "trireme/passes/saved_values.h"
#include "trireme/program/memory_plan.h"

namespace trireme::testing {
namespace {

// Updates that are the gradient itself.
train::Config plain_sgd(const std::string& model) {
  train::Config c = small_model(model);
  c.train.optimizer = "sgd";
  c.train.momentum = c.train.weight_decay = c.train.clip = 0;
  c.train.lr = 1;
  return c;
}

std::map<std::string, std::vector<double>> gradients(const train::Config& config) {
  Trained t(config);
  const auto before = t.state();
  t.train(1);
  const auto after = t.state();
  std::map<std::string, std::vector<double>> result;
  for (const ir::State& s : t.role().module.states) {
    if (!s.trained) continue;
    std::vector<double>& g = result[s.name];
    for (std::size_t i = 0; i < before.at(s.name).size(); ++i)
      g.push_back(static_cast<double>(before.at(s.name)[i]) - static_cast<double>(after.at(s.name)[i]));
  }
  return result;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& exact) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - exact[i]) * (a[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

using Rounding = std::function<std::vector<double>(std::vector<double>)>;  // of one row

std::vector<double> to_bf16(std::vector<double> row) {
  for (double& v : row) v = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(v))));
  return row;
}

std::vector<double> to_int8(std::vector<double> row) {
  for (std::size_t first = 0; first < row.size(); first += 64) {
    const std::size_t end = std::min(row.size(), first + 64);
    double most = 0;
    for (std::size_t i = first; i < end; ++i) most = std::max(most, std::abs(row[i]));
    for (std::size_t i = first; i < end; ++i) {
      if (row[i] == 0) continue;
      const double nearest = std::nearbyint(row[i] * 127 / most);
      row[i] = (nearest == 0 ? std::copysign(1, row[i]) : nearest) * most / 127;
    }
  }
  return row;
}

// relu(W·h + b) twice, then a linear head and the mean cross-entropy of the rows: forward as it is, backward from
// activations that went through `round`.
std::map<std::string, std::vector<double>> reference_gradients(const train::Config& config, const Rounding& round) {
  Trained t(config);
  const auto state = t.state();
  const data::Batch batch = batch_of(config, 0);
  const auto rows = static_cast<std::size_t>(batch.rows);
  const std::size_t layers = static_cast<std::size_t>(config.model.layers);
  std::map<std::string, std::vector<double>> g;
  for (const auto& [name, values] : state) g[name].assign(values.size(), 0);
  const auto layer = [&](std::size_t i) { return i < layers ? "layers." + std::to_string(i) : std::string("head"); };
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t pixels = batch.images.size() / rows;
    std::vector<std::vector<double>> h(1);
    for (std::size_t i = 0; i < pixels; ++i) h[0].push_back(static_cast<double>(batch.images[row * pixels + i]));
    for (std::size_t i = 0; i <= layers; ++i) {
      const auto& w = state.at(layer(i) + ".weight");
      const auto& b = state.at(layer(i) + ".bias");
      std::vector<double> next(b.size());
      for (std::size_t o = 0; o < next.size(); ++o) {
        next[o] = static_cast<double>(b[o]);
        for (std::size_t k = 0; k < h[i].size(); ++k) next[o] += static_cast<double>(w[o * h[i].size() + k]) * h[i][k];
        if (i < layers) next[o] = std::max(0.0, next[o]);
      }
      h.push_back(std::move(next));
    }
    std::vector<double> gradient = h.back();
    const double most = *std::max_element(gradient.begin(), gradient.end());
    double sum = 0;
    for (double& v : gradient) sum += v = std::exp(v - most);
    for (double& v : gradient) v /= sum * static_cast<double>(rows);
    gradient[static_cast<std::size_t>(batch.labels[row])] -= 1 / static_cast<double>(rows);
    for (std::size_t i = layers + 1; i-- > 0;) {
      const std::vector<double> kept = i == 0 ? h[0] : round(h[i]);  // the input is there anyway
      const auto& w = state.at(layer(i) + ".weight");
      std::vector<double> below(kept.size(), 0);
      for (std::size_t o = 0; o < gradient.size(); ++o) {
        g[layer(i) + ".bias"][o] += gradient[o];
        for (std::size_t k = 0; k < kept.size(); ++k) {
          g[layer(i) + ".weight"][o * kept.size() + k] += gradient[o] * kept[k];
          below[k] += gradient[o] * static_cast<double>(w[o * kept.size() + k]);
        }
      }
      for (std::size_t k = 0; k < kept.size(); ++k)
        gradient.resize(kept.size()), gradient[k] = kept[k] > 0 ? below[k] : 0;
    }
  }
  return g;
}

TEST(SavedActivations, GradientsAreThoseOfThePlainReference) {
  train::Config config = plain_sgd("mlp");
  config.model.width = 80;  // a whole block and a piece of one
  for (const auto& [kind, round] :
       {std::pair<std::string, Rounding>{"full", [](auto row) { return row; }}, {"bf16", to_bf16}, {"int8", to_int8}}) {
    config.memory.activations = kind;
    const auto ours = gradients(config);
    const auto expected = reference_gradients(config, round);
    for (const auto& [name, g] : ours) EXPECT_LT(relative_error(g, expected.at(name)), 1e-4) << kind << " " << name;
  }
}

struct Case {
  std::string model;
  std::string precision;
  std::string activations;
  int micro_batches;
};

class SavedActivationsOf : public ::testing::TestWithParam<Case> {};

TEST_P(SavedActivationsOf, ForwardIsExactAndMemoryIsAsPlanned) {
  const Case& c = GetParam();
  train::Config config = small_model(c.model);
  config.train.precision = c.precision;
  config.train.micro_batch = config.train.batch / c.micro_batches;
  config.model.dropout = 0.1;
  Trained full(config, {.threads = 2});
  config.memory.activations = c.activations;
  Trained small(config, {.threads = 2});
  // Nothing was updated yet, so the first loss is that of the forward pass alone.
  EXPECT_EQ(full.step().loss, small.step().loss);
  small.step();
  EXPECT_EQ(small.session().highest_offset(), small.compiled().arena_bytes());
  const program::PeakReport peak = program::peak(small.role().program("step"));
  EXPECT_EQ(std::accumulate(peak.categories.begin(), peak.categories.end(), peak.padding), peak.bytes);
  const auto activations = static_cast<std::size_t>(program::Category::activations);
  // An image model saves the activations behind its batch norms too, whose gates do not follow from rounded inputs:
  // that can outweigh the rest where all is small.
  if (!reads_images(config)) {
    // The smallest models have their peak in the update, where no activation is left.
    EXPECT_LE(small.role().program("step").lower_bound, full.role().program("step").lower_bound);
    EXPECT_LT(peak.categories[activations], program::peak(full.role().program("step")).categories[activations]);
  }
}

// Values that gradients recompute are not saved; what they are computed from is.
TEST(SavedActivations, WithRematerialisation) {
  for (const char* model : {"gpt2", "resnet18"})
    for (const char* remat : {"every:2", "sqrt", "selective", "full"})
      for (const char* precision : {"f32", "fp16"}) {
        SCOPED_TRACE(std::string(model) + " " + remat + " " + precision);
        train::Config config = small_model(model);
        config.model.dropout = 0.1;
        config.train.precision = precision;
        config.train.micro_batch = 4;
        config.memory.remat = remat;
        Trained exact(config);
        config.memory.activations = "int8";
        Trained t(config);
        EXPECT_EQ(exact.step().loss, t.step().loss);
        EXPECT_LE(t.role().program("step").lower_bound, exact.role().program("step").lower_bound);
        EXPECT_EQ(t.session().highest_offset(), t.compiled().arena_bytes());
      }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : small_models())
    for (const char* kind : {"bf16", "int8"})
      for (const int micro_batches : {1, 4}) all.push_back({model, "f32", kind, micro_batches});
  for (const std::string& model : small_models()) all.push_back({model, "bf16", "int8", 1});
  all.push_back({"llama", "fp16", "int8", 4});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, SavedActivationsOf, ::testing::ValuesIn(cases()), [](const auto& one) {
  return one.param.model + "_" + one.param.precision + "_" + one.param.activations + "_" +
         std::to_string(one.param.micro_batches);
});

// Every saved float that may be rounded is: 2 bytes, or 1 and a scale for every 64, where there were 4.
TEST(SavedActivations, BytesSavedAreTheTypes) {
  for (const std::string& model : small_models()) {
    train::Config config = small_model(model);
    const auto saved = [&](const std::string& kind) {
      config.memory.activations = kind;
      const Trained t(config);
      const ir::Graph& g = t.role().module.graph("micro");
      std::map<std::string, TensorType> types;
      for (const passes::SavedValue& v : passes::saved_values(g)) types[g.value(v.value).name] = g.type(v.value);
      return types;
    };
    const auto full = saved("full");
    for (const auto& [kind, suffix] : {std::pair{"bf16", ".bf16"}, std::pair{"int8", ".int8"}}) {
      const auto kept = saved(kind);
      std::size_t before = 0;
      std::size_t after = 0;
      std::size_t compressed = 0;
      // And the activations behind batch norms, whose gates follow from exact inputs only.
      auto all = full;
      for (const auto& [name, type] : kept)
        if (name.ends_with(suffix))
          all.try_emplace(name.substr(0, name.size() - std::string_view(suffix).size()),
                          TensorType{DType::f32, type.shape});
      for (const auto& [name, type] : all) {
        before += type.bytes();
        if (!kept.contains(name + suffix)) {
          EXPECT_EQ(kept.at(name), type) << name;
          after += type.bytes();
          continue;
        }
        EXPECT_FALSE(kept.contains(name)) << name << " is kept twice";
        ++compressed;
        after += static_cast<std::size_t>(type.elements()) * (std::string(kind) == "bf16" ? 2 : 1);
        if (std::string(kind) == "int8") after += ops::int8_scales(type, 64).bytes();
      }
      std::size_t counted = 0;
      for (const auto& [name, type] : kept) counted += type.bytes();
      EXPECT_EQ(counted, after) << model << " " << kind;
      EXPECT_GE(compressed, 2U) << model << " " << kind;
      EXPECT_LT(after, before * 6 / 10) << model << " " << kind;
    }
  }
}

TEST(SavedActivations, GradientErrorIsBounded) {
  for (const std::string& model : small_models()) {
    train::Config config = plain_sgd(model);
    const auto exact = gradients(config);
    for (const auto& [kind, bound] : {std::pair{"bf16", 0.01}, std::pair{"int8", 0.03}}) {
      config.memory.activations = kind;
      std::vector<double> all;
      std::vector<double> expected;
      for (const auto& [name, g] : gradients(config)) {
        all.insert(all.end(), g.begin(), g.end());
        expected.insert(expected.end(), exact.at(name).begin(), exact.at(name).end());
      }
      const double error = relative_error(all, expected);
      EXPECT_LT(error, bound) << model << " " << kind;
      EXPECT_GT(error, 0) << model << " " << kind;
    }
  }
}

TEST(SavedActivations, LossCurveStaysWithThePlainOne) {
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    train::Config config = small_model(model);
    config.train.lr = 3e-3;
    constexpr std::size_t kSteps = 100;
    const auto end = [&](const std::string& kind) {
      config.memory.activations = kind;
      Trained t(config, {.threads = 2});
      t.train(kSteps);
      return std::accumulate(t.losses().end() - 10, t.losses().end(), 0.0) / 10;
    };
    const double plain = end("full");
    for (const char* kind : {"bf16", "int8"}) EXPECT_NEAR(end(kind), plain, 0.03 * plain) << model << " " << kind;
  }
}

TEST(SavedActivations, RefusedWhereNothingIsWide) {
  train::Config config = small_model("gpt2");
  config.train.precision = "bf16";
  config.memory.activations = "bf16";
  try {
    const Trained t(config);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    EXPECT_NE(e.message().find("memory.activations = \"bf16\" has nothing to make smaller"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::testing
