// Replicas that share their model among ranks compress the sums of their gradients like replicas of one rank each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/training.h"
#include "equivalence/trajectory.h"
#include "trireme/core/error.h"
#include "trireme/train/compression.h"

namespace trireme::testing {
namespace {

train::Config compressed(train::Config config, const char* kind) {
  config.parallel.compress = kind;
  config.train.optimizer = "sgd";
  config.train.lr = 0.05;
  const std::string name = kind;
  if (name == "onebit" || name.starts_with("topk")) config.parallel.compress_warmup = 1;
  return config;
}

void expect_like_replicas(const train::Config& plain, const std::string& mesh, bool sequence = false) {
  train::Config config = over_mesh(plain, "dp=2," + mesh);
  config.parallel.sequence = sequence;
  Trained one(over_mesh(plain, "dp=2"));
  Trained many(config);
  Trained exact([&] {
    train::Config c = over_mesh(plain, "dp=2");
    c.parallel.compress = "none";
    c.parallel.compress_warmup = 0;
    return c;
  }());
  for (Trained* trained : {&one, &many, &exact}) trained->train(4);
  expect_equal_training(one, many, 2e-5);
  // What is compressed is another sum.
  EXPECT_NE(one.losses().back(), exact.losses().back());
}

TEST(CompressedMeshes, ImagesShardedByHeightAndWidth) {
  train::Config plain = small_model("convnet");
  plain.model.image = 13;
  plain.model.width = 8;
  train::resolve_model(plain, plain.model.vocab);
  for (const char* kind : {"bf16", "int8", "onebit", "powersgd:2", "topk:0.2"})
    for (const char* mesh : {"h=2", "w=3", "h=2,w=2"}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, mesh));
      expect_like_replicas(compressed(plain, kind), mesh);
    }
}

// Norms have terms on every rank where the sequence is sharded, and shared key heads too. Rounding goes by elements, so
// that shards are rounded like the whole.
TEST(CompressedMeshes, MatricesSharded) {
  for (const char* name : {"gpt2", "llama"})
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{} sequence={}", name, sequence));
      train::Config plain = small_model(name);
      plain.model.context = 20;
      plain.model.width = 48;  // shards of matrices, too, are large enough to be compressed
      plain.model.head_dim = 0;
      train::resolve_model(plain, plain.model.vocab);
      expect_like_replicas(compressed(plain, "bf16"), "tp=4", sequence);
    }
}

// What is taken of a shard is not what is taken of the whole matrix; where all of it is taken, both are the sum.
TEST(CompressedMeshes, ShardedMatricesOfWhichAllIsSentTrainLikeOneRank) {
  for (const char* name : {"gpt2", "llama", "mlp"})
    for (const auto& [kind, weights] :
         {std::pair{"bf16", 0.05}, {"int8", 0.05}, {"powersgd:48", 2e-3}, {"topk:1", 2e-3}}) {
      SCOPED_TRACE(fmt::format("{} {}", name, kind));
      train::Config plain = small_model(name);
      plain.model.width = 48;
      plain.model.head_dim = 0;
      plain.train.optimizer = "sgd";
      plain.train.lr = 0.01;
      plain.train.clip = 0;  // replicas that compress momenta clip their own gradients
      train::resolve_model(plain, plain.model.vocab);
      train::Config sharded = over_mesh(plain, "dp=2,tp=2");
      sharded.parallel.compress = kind;
      if (sharded.parallel.compress == train::Compress::topk) sharded.parallel.compress_warmup = 1;
      train::check(sharded);
      expect_like_by_distance(plain, sharded, {.tolerance = {2e-3, weights}, .steps = 4, .planted = true});
    }
}

TEST(CompressedMeshes, EveryKindTrainsShardedMatrices) {
  for (const char* name : {"gpt2", "llama", "mlp"})
    for (const char* kind : {"bf16", "int8", "powersgd:2", "onebit", "topk:0.5"})
      for (const char* optimizer : {"sgd", "adamw"}) {
        if (std::string(kind).starts_with("topk") && std::string(optimizer) == "adamw") continue;  // refused
        SCOPED_TRACE(fmt::format("{} {} {}", name, kind, optimizer));
        train::Config plain = small_model(name);
        plain.model.width = 48;
        plain.model.head_dim = 0;
        plain.train.optimizer = optimizer;
        plain.train.lr = 0.01;
        train::resolve_model(plain, plain.model.vocab);
        train::Config sharded = over_mesh(plain, "dp=2,tp=2");
        sharded.parallel.compress = kind;
        if (sharded.parallel.compress == train::Compress::onebit || sharded.parallel.compress == train::Compress::topk)
          sharded.parallel.compress_warmup = 1;
        train::check(sharded);
        Trained whole(plain);
        Trained compressed(sharded);
        whole.train(6);
        compressed.train(6);
        // One step is too short a warm-up for 1-bit Adam, whose variance stays what it was then; OneBitAdam has more.
        if (std::string(kind) == "onebit" && std::string(optimizer) == "adamw") continue;
        // Signs, the largest elements and two ranks of small shards are far from the sum, and go the same way.
        const double learned = whole.losses().front() - whole.losses().back();
        const double own = compressed.losses().front() - compressed.losses().back();
        EXPECT_GT(own * learned, 0) << own << " learned, " << learned << " without";
        if (std::string(kind) != "bf16" && std::string(kind) != "int8") continue;
        EXPECT_NEAR(own, learned, 0.05 * std::abs(learned));
      }
}

// Each rank updates its shard by the sum that all of them would have updated the whole by. Three replicas: no tensor's
// rows divide.
TEST(CompressedMeshes, WithShardedState) {
  for (const auto& [kind, optimizer] : {std::pair{"bf16", "adamw"},
                                        {"int8", "adamw"},
                                        {"onebit", "adamw"},
                                        {"powersgd:2", "adamw"},
                                        {"onebit", "sgd"},
                                        {"topk:0.2", "sgd"}})
    for (const char* precision : {"f32", "bf16"}) {
      train::Config plain = small_model("gpt2");
      plain.train.batch = 12;
      plain.train.micro_batch = 6;
      plain.train.optimizer = optimizer;
      plain.train.precision = precision;
      plain.parallel.compress = kind;
      if (plain.parallel.compress == train::Compress::onebit || plain.parallel.compress == train::Compress::topk)
        plain.parallel.compress_warmup = 2;
      Trained whole(over_mesh(plain, "dp=3"));
      whole.train(4);
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {} zero={}", kind, optimizer, precision, zero));
        const train::Config config = over_mesh(plain, "dp=3", zero);
        train::check(config);
        Trained sharded(config);
        sharded.train(4);
        expect_same_bits(whole, sharded);
        EXPECT_EQ(sharded.session().highest_offset(), sharded.compiled().arena_bytes());
      }
    }
}

// A bucket of sums over w may stand behind sums over h and dp that read one of its results: they come after it.
TEST(CompressedMeshes, BucketsThatReadOtherBuckets) {
  train::Config plain = small_model("resnet18");
  plain.model.image = 9;
  train::resolve_model(plain, plain.model.vocab);
  for (const char* bucket : {"1KiB", "4KiB", "25MiB"}) {
    SCOPED_TRACE(bucket);
    plain.parallel.bucket = bucket;
    for (const char* mesh : {"h=2,w=2", "h=3,w=2"})
      EXPECT_NO_THROW(
          train::compile(over_mesh(compressed(plain, "int8"), fmt::format("dp=2,{}", mesh)), train::Registry{}, {}));
  }
}

// A rank has all terms of the shards of a parameter that is annotated over dp, and of parameters that then read whole
// rows; nothing of these is compressed. While the others warm up, all are updated as without compression; fp16's loss
// scale would show in a factor of thousands.
void expect_annotated_to_train(const train::Config& model, const std::map<std::string, std::string>& sharding,
                               const std::string& mesh, bool sequence = false) {
  for (const auto& [kind, optimizer] : {std::pair{"topk:0.2", "sgd"}, {"onebit", "sgd"}, {"onebit", "adamw"}})
    for (const std::string precision : {"f32", "fp16"}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", kind, optimizer, precision, mesh));
      train::Config plain = model;
      plain.train.optimizer = optimizer;
      plain.train.lr = plain.train.optimizer == train::Optimizer::adamw ? 1e-3 : 0.05;
      plain.train.precision = precision;
      plain.train.clip = 0;  // replicas that compress momenta clip their own gradients
      train::Config sharded = over_mesh(plain, mesh);
      sharded.parallel.sequence = sequence;
      sharded.parallel.compress = kind;
      sharded.parallel.compress_warmup = 4;
      sharded.parallel.sharding = sharding;
      Trained one(over_mesh(plain, "dp=2"));
      Trained many(sharded);
      for (Trained* trained : {&one, &many}) trained->train(4);
      expect_equal_training(one, many, precision == "f32" ? 2e-5 : 5e-3);
      // What is said of the norm has no loss scale either.
      EXPECT_LT(many.step().grad_norm, 100);
      // The norm is limited as without the annotation, but for what differs among the ranks.
      const auto limited = [&](bool annotated, std::int64_t warmup) {
        train::Config c = sharded;
        c.train.clip = 0.01;
        if (c.train.optimizer != train::Optimizer::adamw) c.train.lr = 0.3;
        c.parallel.compress_warmup = warmup;
        if (!annotated) c = over_mesh(c, "dp=2");
        if (!annotated) c.parallel.sequence = false;
        if (!annotated) c.parallel.sharding.clear();
        Trained trained(c);
        trained.train(6);
        return trained.losses();
      };
      const std::vector<double> own = limited(true, 6), expected = limited(false, 6);
      for (std::size_t s = 0; s < own.size(); ++s) EXPECT_NEAR(own[s], expected[s], 1e-2 * expected[s]) << "step " << s;
      EXPECT_NEAR(limited(true, 1).back(), own.back(), 0.2 * own.back());  // compressed, too
    }
}

TEST(CompressedMeshes, ParametersShardedOverData) {
  expect_annotated_to_train(small_model("llama"), {{"*.attn.o.weight", "out:dp"}, {"*.mlp.up.weight", "in:dp"}},
                            "dp=2");
}

// Their gradients are summed over tp before.
TEST(CompressedMeshes, ParametersShardedOverDataNextToOthers) {
  train::Config model = small_model("llama");
  model.model.context = 20;
  train::resolve_model(model, model.model.vocab);
  for (const bool sequence : {false, true})
    expect_annotated_to_train(
        model, {{"*.mlp.gate.weight", "out:tp"}, {"*.attn_norm.weight", "0:dp"}, {"*.mlp.up.weight", "in:dp"}},
        "dp=2,tp=2", sequence);
}

TEST(CompressedMeshes, ATableShardedOverData) {
  for (const char* sharding : {"vocab:dp", "in:dp"})
    expect_annotated_to_train(small_model("llama"), {{"embed.weight", sharding}}, "dp=2");
}

// That is read first and last: nothing else brings dp to what is between.
TEST(CompressedMeshes, ATiedTableShardedOverData) {
  train::Config tied = small_model("llama");
  tied.model.tie_embeddings = true;
  expect_annotated_to_train(tied, {{"embed.weight", "vocab:dp"}}, "dp=2");
  for (const char* kind : {"bf16", "int8", "onebit", "powersgd:2", "topk:0.2"}) {
    SCOPED_TRACE(kind);
    train::Config config = over_mesh(compressed(small_model("gpt2"), kind), "dp=2");
    config.parallel.sharding = {{"wte.weight", "vocab:dp"}};
    const train::Registry registry;
    EXPECT_EQ(train::compression_warning(config, train::compile(config, registry, {})), "");
  }
}

// Where every rank has all terms of all gradients, that is said.
TEST(CompressedMeshes, CompressionOfNothingIsWarnedOf) {
  const auto warning = [](train::Config config, const char* kind, const std::map<std::string, std::string>& sharding) {
    config = over_mesh(compressed(config, kind), "dp=2");
    config.parallel.sharding = sharding;
    const train::Registry registry;
    return train::compression_warning(config, train::compile(config, registry, {}));
  };
  train::Config tiny = small_model("mlp");
  tiny.model.image = 4;
  tiny.model.channels = 1;
  tiny.model.width = 8;
  train::resolve_model(tiny, tiny.model.vocab);
  for (const char* kind : {"bf16", "int8", "onebit", "powersgd:2", "topk:0.2"}) {
    SCOPED_TRACE(kind);
    EXPECT_EQ(warning(small_model("mlp"), kind, {}), "");
    const std::string whole = warning(small_model("mlp"), kind, {{"*.weight", "out:dp"}});
    EXPECT_NE(whole.find(fmt::format("parallel.compress = \"{}\" has no effect", kind)), whole.npos) << whole;
    if (std::string(kind) == "bf16" || std::string(kind) == "int8") {
      EXPECT_NE(warning(tiny, kind, {}), "") << "of small tensors alone";
    }
  }
}

// And over h.
TEST(CompressedMeshes, ConvolutionsShardedOverData) {
  train::Config model = small_model("convnet");
  model.model.image = 13;
  model.model.width = 8;
  train::resolve_model(model, model.model.vocab);
  for (const char* mesh : {"dp=2", "dp=2,h=2"})
    expect_annotated_to_train(model, {{"blocks.1.conv.weight", "out:dp"}}, mesh);
}

// A stage of activations alone has no gradients to send, and takes part in the sum that gives the others their norm.
TEST(CompressedMeshes, WithAStageWithoutParameters) {
  train::Config plain = compressed(small_model("mlp"), "topk:0.2");
  plain.train.clip = 0.5;
  plain.train.batch = 12;
  plain.train.micro_batch = 4;  // which rows are a replica's goes by micro-batches
  const auto has_none = [](const train::Role& role) {
    return std::none_of(role.module.states.begin(), role.module.states.end(),
                        [](const ir::State& state) { return state.trained; });
  };
  const train::Compiled staged = train::compile(over_mesh(plain, "dp=2,pp=4"), train::Registry{}, {});
  EXPECT_TRUE(std::any_of(staged.roles.begin(), staged.roles.end(), has_none));
  expect_like_replicas(plain, "pp=4");
}

// What is compressed is the same wherever the states are.
TEST(CompressedMeshes, WithStatesOffloaded) {
  for (const auto& [kind, optimizer] : {std::pair{"int8", "adamw"},
                                        {"onebit", "adamw"},
                                        {"powersgd:2", "adamw"},
                                        {"onebit", "sgd"},
                                        {"topk:0.2", "sgd"}}) {
    train::Config plain = wider_model("gpt2");
    plain.train.optimizer = optimizer;
    plain.parallel.compress = kind;
    if (plain.parallel.compress == train::Compress::onebit || plain.parallel.compress == train::Compress::topk)
      plain.parallel.compress_warmup = 1;
    Trained here(over_mesh(plain, "dp=2"));
    here.train(2);
    for (const char* offload : {"optimizer", "all"})
      for (const int zero : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} {} {} zero={}", kind, optimizer, offload, zero));
        train::Config config = over_mesh(plain, "dp=2", zero);
        config.memory.offload = offload;
        config.memory.offload_policy = "all";
        train::check(config);
        Trained away(config);
        away.train(2);
        expect_same_bits(here, away);
        EXPECT_GT(away.compiled().tier_bytes(2), 0U);
        EXPECT_EQ(away.session().highest_offset(), away.compiled().arena_bytes());
      }
  }
}

// Momenta are made early, for their collectives: loads into memory that is free where these launches stood wait for the
// compute instruction that is before them now. Layers enough that loads do reuse such memory.
TEST(CompressedMeshes, LoadsWaitWhereMomentaHaveMovedUp) {
  train::Config plain = small_model("llama");
  plain.model.layers = 4;
  plain.model.width = 96;
  plain.model.head_dim = 0;
  plain.model.ffn = 0;
  plain.model.context = 32;
  plain.train.optimizer = "adamw";
  plain.train.clip = 0;  // which each rank of an asynchronous pipeline would take of its own terms
  plain.parallel.compress = "onebit";
  plain.parallel.compress_warmup = 1;
  train::resolve_model(plain, plain.model.vocab);
  struct Case {
    const char* mesh;
    int zero;
    const char* pipeline;
  };
  for (const auto& [mesh, zero, pipeline] : {Case{"dp=2", 0, "1f1b"},
                                             {"dp=2", 1, "1f1b"},
                                             {"dp=2", 3, "1f1b"},
                                             {"dp=2,pp=2", 2, "pipedream"},
                                             {"dp=2,pp=2", 2, "pipedream-2bw"}}) {
    plain.train.micro_batch = std::string(pipeline) == "1f1b" ? 0 : 2;
    plain.parallel.pipeline = pipeline;
    train::Config config = over_mesh(plain, mesh, zero);
    Trained here(config);
    here.train(3);
    for (const char* offload : {"optimizer", "all"}) {
      SCOPED_TRACE(fmt::format("{} zero={} {} {}", mesh, zero, pipeline, offload));
      config.memory.offload = offload;
      train::check(config);
      try {
        Trained away(config);
        EXPECT_GT(away.compiled().tier_bytes(2), 0U);
        away.train(3);
        expect_same_bits(here, away);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
}

// 1-bit Adam: what is sent is the momentum of all terms.
TEST(CompressedMeshes, MomentumOfAllTerms) {
  train::Config plain = small_model("convnet");
  plain.model.image = 13;
  plain.model.width = 8;
  train::resolve_model(plain, plain.model.vocab);
  plain.parallel.compress = "onebit";
  plain.parallel.compress_warmup = 2;
  expect_like_replicas(plain, "h=2");
}

}  // namespace
}  // namespace trireme::testing
