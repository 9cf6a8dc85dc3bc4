// Pruning against a plainly written reference: training that zeroes weights and optimizer states itself.
#include "trireme/train/prune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "equivalence/compression_reference.h"
#include "equivalence/pipedream_reference.h"
#include "equivalence/pruned.h"
#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

void write(Trained& trained, const std::string& name, const std::vector<float>& values) {
  trained.session().write_state(name, 0, std::as_bytes(std::span(values)));
}

double zeros(const std::vector<float>& mask) {
  return static_cast<double>(std::count(mask.begin(), mask.end(), 0.0F)) / static_cast<double>(mask.size());
}

void expect_masked(const States& state) {
  for (const std::string& name : masked(state)) {
    const std::vector<float>& mask = state.at(name + "/mask");
    for (const char* suffix : {"", "/m", "/v", "/momentum"}) {
      if (!state.contains(name + suffix)) continue;
      const std::vector<float>& values = state.at(name + suffix);
      for (std::size_t i = 0; i < mask.size(); ++i) {
        ASSERT_TRUE(mask[i] == 0 || mask[i] == 1) << name;
        if (mask[i] == 0) {
          ASSERT_EQ(values[i], 0) << name << suffix << " at " << i;
        }
      }
    }
  }
}

// A mask of the largest scores, to a sparsity; what is zero in `before` stays so.
std::vector<float> mask_of_scores(const std::vector<float>& scores, const std::vector<float>& before, double sparsity) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto size = [&](std::size_t i) { return before[i] == 0 ? -std::numeric_limits<float>::infinity() : scores[i]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  const auto dropped = static_cast<std::size_t>(std::round(sparsity * static_cast<double>(scores.size())));
  std::vector<float> mask(scores.size(), 0);
  for (std::size_t i = 0; i + dropped < scores.size(); ++i)
    if (before[order[i]] != 0) mask[order[i]] = 1;
  return mask;
}

// By magnitude, of the tensor as it is.
std::vector<float> reference_mask(std::vector<float> w, const std::vector<float>& before, double sparsity) {
  for (float& value : w) value = std::abs(value);
  return mask_of_scores(w, before, sparsity);
}

// What movement ranks by: −w·m, added up over the prunings, m being the mean of the gradients.
void add_pushes(const States& state, const std::string& name, std::vector<float>& scores) {
  const std::vector<float>& w = state.at(name);
  const std::vector<float>& m = state.at(name + (state.contains(name + "/m") ? "/m" : "/momentum"));
  std::vector<float> pushes(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) pushes[i] = -(w[i] * m[i]);  // rounded before it is added
  scores.resize(w.size(), 0);
  for (std::size_t i = 0; i < w.size(); ++i) scores[i] += pushes[i];
}

class PruneReference : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

// Without the pass: the same steps, after which the test sets to zero what is pruned.
TEST_P(PruneReference, TrainsLikeIt) {
  const auto [model, optimizer, method] = GetParam();
  constexpr std::int64_t kSteps = 6;
  train::Config config = pruned(model, method, "unstructured", "gradual", kSteps);
  config.prune.sparsity = 0.8;
  config.train.optimizer = optimizer;
  Trained trained(config);
  train::Config plain = config;
  plain.prune = {};
  Trained reference(plain);
  States masks, scores;
  const States start = trained.state();
  const std::vector<std::string> names = masked(start);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    masks[name].assign(reference.state().at(name).size(), 1);
    if (method == "random") scores[name] = start.at(name + "/score");  // drawn once
  }
  std::int64_t prunings = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (step == 1 || step == 3 || step == 5) {
      const double left = 1 - static_cast<double>(++prunings) / 3;
      const double sparsity = 0.8 * (1 - left * left * left);
      const States before = reference.state();
      for (const std::string& name : names) {
        if (method == "movement") add_pushes(before, name, scores[name]);
        masks[name] = method == "magnitude" ? reference_mask(before.at(name), masks[name], sparsity)
                                            : mask_of_scores(scores[name], masks[name], sparsity);
      }
    }
    reference.train(1);
    trained.train(1);
    States state = reference.state();
    for (const std::string& name : names)
      for (const char* suffix : {"", "/m", "/v", "/momentum"}) {
        if (!state.contains(name + suffix)) continue;
        std::vector<float>& values = state.at(name + suffix);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] *= masks[name][i];
        write(reference, name + suffix, values);
      }
    const States own = trained.state();
    expect_masked(own);
    for (const std::string& name : names) EXPECT_EQ(own.at(name + "/mask"), masks[name]) << name << " step " << step;
  }
  EXPECT_EQ(trained.losses(), reference.losses());
  const States own = trained.state();
  for (const auto& [name, values] : reference.state()) EXPECT_EQ(values, own.at(name)) << name;
  for (const std::string& name : names) EXPECT_NEAR(zeros(own.at(name + "/mask")), 0.8, 0.5 / 32) << name;
}
INSTANTIATE_TEST_SUITE_P(Models, PruneReference,
                         ::testing::Combine(::testing::Values("mlp", "gpt2", "llama", "convnet"),
                                            ::testing::Values("adamw", "sgd"),
                                            ::testing::Values("magnitude", "movement", "random")),
                         [](const auto& given) { return fmt::format("{}", fmt::join(given.param, "_")); });

struct Way {
  std::string mesh;
  int zero = 0;
  std::string settings = "";
};

class PruneMesh : public ::testing::TestWithParam<Way> {};

TEST_P(PruneMesh, RanksTrainLikeOne) {
  const Way& way = GetParam();
  for (const char* model : {"gpt2", "mlp"})
    for (const char* pattern : {"unstructured", "2:4", "neurons"})
      for (const char* method : {"magnitude", "movement", "random"}) {
        const bool at_once = std::string(pattern) == "2:4";
        if (at_once && std::string(method) != "magnitude") continue;
        // Its sums are over 363 pixels, and it is too short to recompute anything.
        const bool mlp = std::string(model) == "mlp";
        if (mlp && (at_once || way.settings.find("remat") != std::string::npos)) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", model, pattern, method));
        train::Config config = pruned(model, method, pattern, at_once ? "oneshot" : "gradual", 4);
        if (way.mesh.find("pp") != std::string::npos) config.train.micro_batch = 2;
        Trained one(config);
        one.train(4);
        for (const std::string& setting : split(way.settings, ';'))
          if (!setting.empty()) train::apply_setting(config, setting);
        train::check(config);
        Trained many(over_mesh(config, way.mesh, way.zero));
        many.train(4);
        expect_equal_training(one, many, 2e-5);
        const States a = one.state(), b = many.state();
        expect_masked(b);
        for (const std::string& name : masked(a)) {
          ASSERT_TRUE(b.contains(name + "/mask")) << name;
          EXPECT_EQ(a.at(name + "/mask"), b.at(name + "/mask")) << name;
        }
      }
}
INSTANTIATE_TEST_SUITE_P(Ways, PruneMesh,
                         ::testing::Values(Way{"dp=2"}, Way{"dp=2", 1}, Way{"dp=2", 2}, Way{"dp=2", 3}, Way{"tp=2"},
                                           Way{"pp=2"}, Way{"dp=2,tp=2", 3}, Way{"pp=2,dp=2", 1},
                                           Way{"dp=2", 0, "parallel.server=sync"},
                                           Way{"dp=2", 0, "parallel.server=sync;parallel.servers=3"},
                                           Way{"pp=2,tp=2", 0, "parallel.server=sync;parallel.servers=2"},
                                           Way{"pp=2,tp=2"}, Way{"pp=2,tp=2", 0, "parallel.server=sync"},
                                           Way{"pp=2", 0, "parallel.server=sync;parallel.servers=2"},
                                           Way{"tp=2", 0, "parallel.server=sync;parallel.servers=2"},
                                           Way{"dp=1", 0, "memory.offload=all"}, Way{"dp=1", 0, "memory.remat=full"}),
                         [](const auto& given) {
                           std::string name =
                               fmt::format("{}_zero{}_{}", given.param.mesh, given.param.zero, given.param.settings);
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

// Shards of masks are padded as those of weights are: nothing of the padding is ever among the largest.
TEST(PrunePadded, SizesThatTpDoesNotDivide) {
  struct Case {
    std::string model, method, pattern, mesh;
    std::int64_t ffn = 50;
    int zero = 0;
  };
  for (const Case& c : {Case{"gpt2", "magnitude", "unstructured", "tp=4"}, Case{"gpt2", "movement", "neurons", "tp=4"},
                        Case{"gpt2", "magnitude", "2:4", "tp=8", 52}, Case{"llama", "random", "unstructured", "tp=4"},
                        Case{"gpt2", "movement", "unstructured", "dp=2,tp=4", 50, 3},
                        Case{"mlp", "magnitude", "unstructured", "tp=2"}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", c.model, c.method, c.pattern, c.mesh));
    train::Config config = pruned(c.model, c.method, c.pattern, c.pattern == "2:4" ? "oneshot" : "gradual", 4);
    if (c.model == "mlp") {
      config.model.width = 25;
    } else {
      config.model.ffn = c.ffn;
      if (c.mesh == "tp=8") config.model.heads = 8;
    }
    train::check(config);
    Trained one(config);
    one.train(4);
    Trained many(over_mesh(config, c.mesh, c.zero));
    many.train(4);
    expect_equal_training(one, many, 2e-5);
    const States a = one.state(), b = many.state();
    expect_masked(b);
    ASSERT_FALSE(masked(a).empty());
    for (const std::string& name : masked(a)) EXPECT_EQ(a.at(name + "/mask"), b.at(name + "/mask")) << name;
  }
}

// Of a channel that several convolutions have, another stage may have some.
TEST(PruneStages, ChannelsGoOverStagesAndServers) {
  train::Config config = pruned("convnet", "magnitude", "channels", "gradual", 4);
  config.train.micro_batch = 2;
  Trained one(config);
  one.train(4);
  for (const char* server : {"none", "sync"}) {
    SCOPED_TRACE(server);
    train::Config over = over_mesh(config, "pp=3");
    over.parallel.server = server;
    Trained many(over);
    many.train(4);
    expect_equal_training(one, many, 2e-5);
    for (const std::string& name : masked(one.state()))
      EXPECT_EQ(one.state().at(name + "/mask"), many.state().at(name + "/mask")) << name;
  }
}

// With everything taken, what each rank sends is its momentum, whose sum is the optimizer's: as without compression.
// In steps that warm up, signs are not sent yet.
TEST(PruneCompressed, TrainsLikeItsReference) {
  struct Case {
    std::string compress;
    std::string optimizer;
    std::string server = "none";
  };
  for (const Case& c : {Case{"topk:1", "sgd"}, Case{"onebit", "sgd"}, Case{"onebit", "adamw"},
                        Case{"topk:1", "sgd", "sync"}, Case{"onebit", "adamw", "sync"}}) {
    SCOPED_TRACE(fmt::format("{} {} server {}", c.compress, c.optimizer, c.server));
    train::Config config = pruned("gpt2", "magnitude", "unstructured", "gradual", 6);
    config.train.optimizer = c.optimizer;
    config.train.clip = 0;
    Trained one(config);
    one.train(4);
    config = over_mesh(config, "dp=2");
    config.parallel.compress = c.compress;
    config.parallel.compress_warmup = c.compress == "onebit" ? 4 : 2;
    config.parallel.server = c.server;
    train::check(config);
    Trained many(config);
    many.train(4);
    expect_equal_training(one, many, 2e-5);
    for (const std::string& name : masked(one.state()))
      EXPECT_EQ(one.state().at(name + "/mask"), many.state().at(name + "/mask")) << name;
    many.train(2);
    const States state = many.state();
    expect_masked(state);
    EXPECT_NEAR(zeros(state.at("blocks.0.mlp.up.weight/mask")), 0.5, 1e-3);
    for (const std::string& name : masked(state)) {
      const auto own = state.find(name + "/own_momentum");  // of every replica
      if (own == state.end()) continue;
      const std::vector<float>& mask = state.at(name + "/mask");
      for (std::size_t i = 0; i < own->second.size(); ++i)
        if (mask[i % mask.size()] == 0) {
          ASSERT_EQ(own->second[i], 0) << name;
        }
    }
  }
}

// The pipeline is empty when it prunes, as for a checkpoint.
TEST(PrunePipedream, TrainsLikeItsReference) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const char* model : {"mlp", "llama"}) {
      SCOPED_TRACE(fmt::format("{} {}", pipeline, model));
      train::Config config = small_model(model);
      config.model.layers = 4;
      config.model.tie_embeddings = false;
      config.train.steps = 6;
      config.train.micro_batch = config.train.batch / 4;
      config.prune.method = "magnitude";
      config.prune.schedule = "gradual";
      config.prune.begin = 1;
      config.prune.end = 4;
      config.prune.every = 3;
      config.parallel.pipeline = pipeline;
      train::resolve_model(config, config.model.vocab);
      config = over_mesh(config, "pp=2");
      train::check(config);
      Trained run(config);
      run.train(6);
      PipedreamReference reference(config);
      const std::vector<std::string> names = masked(run.state());
      ASSERT_FALSE(names.empty());
      States masks;
      for (const std::string& name : names) masks[name].assign(reference.weights().at(name).size(), 1);
      reference.train(1);
      for (const double left : {0.5, 0.0}) {
        for (const std::string& name : names)
          masks[name] = reference_mask(reference.weights().at(name), masks[name], 0.5 * (1 - left * left * left));
        reference.keep(masks);
        reference.train(left > 0 ? 3 : 2);
      }
      const States state = run.state();
      expect_masked(state);
      for (const std::string& name : names) EXPECT_EQ(state.at(name + "/mask"), masks[name]) << name;
      for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(run.losses()[i], reference.losses()[i], 1e-5) << i;
      EXPECT_LE(weight_error(run, reference.weights()), 1e-5);
    }
}

TEST(Prune, TwoOfFourInEveryRow) {
  for (const char* model : {"gpt2", "llama"}) {
    train::Config config = pruned(model, "magnitude", "2:4", "oneshot", 3);
    Trained trained(config);
    trained.train(3);
    const States state = trained.state();
    for (const std::string& name : masked(state)) {
      const std::vector<float>& mask = state.at(name + "/mask");
      for (std::size_t i = 0; i < mask.size(); i += 4)
        ASSERT_EQ(mask[i] + mask[i + 1] + mask[i + 2] + mask[i + 3], 2) << name << " at " << i;
    }
    expect_masked(state);
  }
}

// What is pruned of a slice is all of it, in every tensor that has a part of it.
TEST(Prune, SlicesGoTogether) {
  train::Config config = pruned("gpt2", "magnitude", "neurons", "oneshot", 3);
  Trained trained(config);
  trained.train(3);
  const States state = trained.state();
  const auto ffn = static_cast<std::size_t>(state.at("blocks.0.mlp.up.bias").size());
  const auto width = static_cast<std::size_t>(config.model.width);
  const std::vector<float>& up = state.at("blocks.0.mlp.up.weight/mask");
  const std::vector<float>& down = state.at("blocks.0.mlp.down.weight/mask");
  const std::vector<float>& bias = state.at("blocks.0.mlp.up.bias/mask");
  for (std::size_t n = 0; n < ffn; ++n)
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_EQ(up[n * width + i], bias[n]);
      ASSERT_EQ(down[i * ffn + n], bias[n]);
    }
  EXPECT_NEAR(zeros(bias), 0.5, 1e-9);
  EXPECT_FALSE(state.contains("blocks.0.attn.qkv.weight/mask"));
}

// After each round the weights are those of the early step, without what is pruned, and the optimizer begins anew.
TEST(Prune, RewindsToAnEarlyStep) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2"})
    for (const int zero : {0, 1, 3}) {
      if (zero > 0 && std::string(mesh) != "dp=2") continue;
      SCOPED_TRACE(fmt::format("{} zero {}", mesh, zero));
      train::Config config = pruned("gpt2", "magnitude", "unstructured", "iterative", 8);
      config.prune.begin = 3;
      config.prune.every = 2;
      config.prune.rewind = 2;
      if (std::string(mesh) == "pp=2") config.train.micro_batch = 2;
      if (*mesh != 0) config = over_mesh(config, mesh, zero);
      Trained trained(config);
      trained.train(2);
      const States early = trained.state();
      for (int round = 0; round < 2; ++round) {
        trained.train(2);  // the second of which prunes and rewinds
        const States state = trained.state();
        for (const auto& [name, values] : early) {
          const bool optimizer = name.ends_with("/m") || name.ends_with("/v");
          if (!optimizer && name.find('/') != std::string::npos) continue;
          const bool has_mask = state.contains(name + "/mask");
          for (std::size_t i = 0; i < values.size(); ++i) {
            const float kept = has_mask ? state.at(name + "/mask")[i] : 1.0F;
            ASSERT_EQ(state.at(name)[i], optimizer ? 0.0F : values[i] * kept) << name << " round " << round;
          }
        }
        const double expected = 1 - std::pow(0.5, (round + 1) / 2.0);
        EXPECT_NEAR(zeros(state.at("blocks.0.mlp.up.weight/mask")), expected, 1e-3);
      }
    }
}

TEST(Prune, GroupsAreThoseOfTheModel) {
  const auto names = [](const std::string& model) {
    const train::Config config = small_model(model);
    const train::Registry registry;
    const auto planned = train::make_plan(config, registry, {});
    std::vector<std::string> all;
    for (const auto& group : passes::dimension_groups(planned.graphs.module, planned.graphs.module.graph("micro"))) {
      std::string text = passes::name_of(group.kind);
      for (const auto& member : group.members) text += " " + member.state + ":" + std::to_string(member.dim);
      all.push_back(text);
    }
    return all;
  };
  const std::vector<std::string> gpt2 = names("gpt2");
  ASSERT_GE(gpt2.size(), 2U);
  EXPECT_EQ(gpt2[0], "heads blocks.0.attn.qkv.weight:1 blocks.0.attn.qkv.bias:1 blocks.0.attn.proj.weight:1");
  EXPECT_EQ(gpt2[1], "neurons blocks.0.mlp.up.weight:0 blocks.0.mlp.up.bias:0 blocks.0.mlp.down.weight:1");
  const std::vector<std::string> llama = names("llama");
  EXPECT_EQ(llama[0],
            "heads blocks.0.attn.q.weight:0 blocks.0.attn.k.weight:0 blocks.0.attn.v.weight:0 "
            "blocks.0.attn.o.weight:1");
  EXPECT_EQ(llama[1], "neurons blocks.0.mlp.gate.weight:0 blocks.0.mlp.up.weight:0 blocks.0.mlp.down.weight:1");
  EXPECT_EQ(names("mlp")[0], "neurons layers.0.weight:0 layers.0.bias:0 layers.1.weight:1");
  EXPECT_TRUE(names("convnet")[0].starts_with("channels blocks.0.conv.weight:0")) << names("convnet")[0];
}

}  // namespace
}  // namespace trireme::testing
