// A key that was given either changes what is compiled, or the user hears that it does not: it is refused or warned of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/program/print.h"
#include "trireme/train/compile.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/offload_warning.h"

namespace trireme::train {
namespace {

using Settings = std::vector<std::string>;

constexpr const char* kFalseAlarm = "warned, although it changes something";

Settings joined(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// All programs of all roles, with the attributes of every instruction, and what is decided apart from them.
std::string text_of(const Compiled& c) {
  std::string text = c.ranks() == 1 ? "" : fmt::format("allreduce {};", static_cast<int>(c.plan.allreduce));
  for (const Role& role : c.roles) {
    text += role.name;
    for (const program::Program& p : role.programs) {
      text += program::to_text(p);
      for (const program::Instruction& i : p.instructions)
        for (const auto& [name, value] : i.attributes) text += fmt::format("{}={};", name, ir::to_text(value));
    }
    if (role.exchange) text += role.exchange->pace();
  }
  for (const compiler::StepProgram& step : c.steps) text += fmt::format("{} from {};", step.program, step.from);
  return text;
}

Config configured(const Settings& settings) {
  Config config = parse_config("", "file.toml", settings);
  resolve_model(config, 64);
  return config;
}

std::string compiled_text(const Config& config) {
  const Registry registry;
  return text_of(compile(config, registry, {}));
}

// What a setting does on top of others: "refused", "warned", "changes" or, which must not be, "silent".
std::string effect_of(const Settings& base, const std::string& setting, const std::string& plain) {
  const std::string key = setting.substr(0, setting.find('='));
  try {
    const Config config = configured(joined(base, {setting}));
    const int ranks = mesh_of(config).ranks();
    const Registry registry;
    const Compiled compiled = compile(config, registry, {});
    if (key == "memory.offload" && !offload_warning(config, compiled).empty()) return "warned";
    const std::vector<std::string> unused = keys_without_effect(config, models::builtin_families(), ranks);
    const bool warned = std::any_of(unused.begin(), unused.end(),
                                    [&](const std::string& text) { return text.starts_with(key + " = "); });
    const bool changes = text_of(compiled) != plain;
    // An op has them as attributes, which it does not read without scaling.
    const bool scaling = key.starts_with("model.rope_");
    if (warned && changes && !scaling) return kFalseAlarm;
    return warned ? "warned" : changes ? "changes" : "silent";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
    return "refused";
  }
}

const Settings kText = {"model.layers=4", "model.width=16",      "model.heads=2",      "model.context=8",
                        "train.batch=8",  "train.micro_batch=2", "runtime.device=cpu", "output.staging=64KiB"};
const Settings kImages = {"data.images=synthetic", "model.layers=4",      "model.width=8",      "model.image=16",
                          "train.batch=8",         "train.micro_batch=2", "runtime.device=cpu", "output.staging=64KiB"};

Settings base(const std::string& family, const Settings& more) {
  const bool text = family == "gpt2" || family == "llama";
  return joined(joined({"model.family=" + family}, text ? kText : kImages), more);
}

const std::vector<Settings>& bases() {
  static const std::vector<Settings> all = {
      base("gpt2", {}),
      base("gpt2", {"parallel.mesh=dp=2"}),
      base("gpt2", {"parallel.mesh=tp=2"}),
      base("gpt2", {"parallel.mesh=pp=2"}),
      base("gpt2", {"parallel.mesh=dp=2", "parallel.server=sync"}),
      base("gpt2", {"parallel.mesh=dp=2", "parallel.compress=int8"}),
      base("llama", {"parallel.mesh=dp=2,tp=2", "train.precision=bf16", "parallel.sequence=true"}),
      base("llama", {"parallel.mesh=pp=2,dp=2", "parallel.pipeline=gpipe", "parallel.zero=2"}),
      base("mlp", {"parallel.mesh=pp=2", "parallel.pipeline=pipedream"}),
      base("mlp", {"train.optimizer=sgd", "parallel.mesh=dp=2", "parallel.compress=topk:0.1"}),
      base("gpt2", {"prune.method=magnitude", "train.steps=80"}),
      base("mlp", {"prune.method=magnitude", "prune.schedule=iterative", "train.steps=80"}),
      base("convnet", {"train.optimizer=sgd"}),
      base("convnet", {"parallel.mesh=h=2"}),
      base("convnet", {"parallel.mesh=dp=2,w=2", "parallel.zero=1"}),
      base("gpt2", {"parallel.mesh=pp=2,tp=2"}),
      base("llama", {"parallel.mesh=pp=2,dp=2,tp=2"}),
  };
  return all;
}

// Where a key that has an effect along one axis could be ignored next to another one: all keys are tried there.
constexpr std::size_t kWithAllKeys = 2;  // of the last bases

// For every key that shapes what is compiled, values that are not the default.
const Settings& settings() {
  static const Settings all = {
      "model.kv_heads=1",
      "model.head_dim=16",
      "model.ffn=24",
      "model.vocab=70",
      "model.document_end=3",
      "model.dropout=0.2",
      "model.tie_embeddings=false",
      "model.tie_embeddings=true",
      "model.norm_eps=1e-3",
      "model.init_std=0.1",
      "model.rope_theta=500",
      "model.rope_scaling=linear",
      "model.rope_scaling=llama3",
      "model.rope_factor=2",
      "model.rope_low=2",
      "model.rope_high=8",
      "model.rope_original=4",
      "model.classes=7",
      "model.image=20",
      "model.channels=1",
      "train.micro_batch=4",
      "train.optimizer=sgd",
      "train.optimizer=adamw",
      "train.momentum=0.5",
      "train.weight_decay=0.3",
      "train.betas=0.8,0.9",
      "train.eps=1e-3",
      "train.clip=0",
      "train.batch_stats=local",
      "train.precision=bf16",
      "train.precision=fp16",
      "train.loss_scale=128",
      "train.loss_scale_window=7",
      "parallel.stages=[1,3]",
      "parallel.zero=1",
      "parallel.zero=2",
      "parallel.zero=3",
      "parallel.sequence=true",
      "parallel.async_tp=true",
      "parallel.stage_dtype=bf16",
      "parallel.stage_dtype=int8",
      "parallel.pipeline=gpipe",
      "parallel.pipeline=zero-bubble",
      "parallel.pipeline=interleaved:2",
      "parallel.bucket=1KiB",
      "parallel.overlap=false",
      "parallel.allreduce=ring",
      "parallel.compress=bf16",
      "parallel.error_feedback=false",
      "parallel.momentum_masking=true",
      "parallel.compress_warmup=3",
      "parallel.server=sync",
      "parallel.servers=2",
      "memory.remat=sqrt",
      "memory.remat=full",
      "memory.offload=all",
      "memory.offload_policy=all",
      "memory.offload_tier=disk",
      "memory.offload_update=host",
      "memory.offload_dir=/tmp",
      "memory.activations=bf16",
      "memory.activations=int8",
      "memory.activations=sharded",
      "runtime.overlap_wgrad=true",
      "train.quantize=int8",
      "memory.weights=int8",
      "memory.weight_bits=[\"*=8\"]",
      "memory.linear_inputs=int8",
      "memory.kv_cache=int8",
      "prune.method=random",
      "prune.sparsity=0.3",
      "prune.pattern=heads",
      "prune.pattern=neurons",
      "prune.schedule=oneshot",
      "prune.begin=30",
      "prune.end=50",
      "prune.every=3",
      "prune.rounds=2",
      "prune.rewind=2",
      "distil.teacher=nowhere",
      "distil.temperature=3",
      "distil.alpha=0.3",
      "distil.hidden=0.1",
  };
  return all;
}

TEST(Effect, NoKeyIsIgnoredInSilence) {
  // The quick test has a quarter of the keys in each configuration, others in the next.
  constexpr std::size_t kParts = 4;
  const bool whole = std::getenv("TRIREME_WHOLE") != nullptr;
  std::map<std::string, std::size_t> numbers;  // of the keys
  for (const std::string& setting : settings())
    numbers.try_emplace(setting.substr(0, setting.find('=')), numbers.size());
  std::set<std::string> changed;
  for (std::size_t b = 0; b < bases().size(); ++b) {
    const Settings& with = bases()[b];
    const std::string plain = compiled_text(configured(with));
    std::map<std::string, std::set<std::string>> effects;  // by key
    for (const std::string& setting : settings()) {
      if (std::find(with.begin(), with.end(), setting) != with.end()) continue;
      const std::string key = setting.substr(0, setting.find('='));
      const bool all = whole || b + kWithAllKeys >= bases().size();
      if (!all && (numbers.at(key) + b) % kParts != 0) continue;
      Settings without = with;
      std::erase_if(without, [&](const std::string& given) { return given.starts_with(key + "="); });
      effects[key].insert(effect_of(without, setting, plain));
    }
    for (const auto& [key, found] : effects) {
      const std::string where = fmt::format("{} with --{}", key, fmt::join(with, " --"));
      EXPECT_FALSE(found.contains(kFalseAlarm)) << where;
      // One of its values may be what holds anyway.
      EXPECT_TRUE(found.contains("changes") || !found.contains("silent")) << where << " is ignored in silence";
      if (found.contains("changes")) changed.insert(key);
    }
  }
  // A test of keys that are all refused would show nothing.
  EXPECT_GE(changed.size(), 35U);
}

// A new key must be listed where it matters: above, in the table of keys without effect, or here.
TEST(Effect, EveryKeyIsAccountedFor) {
  const std::set<std::string> always = {
      "model.family",
      "model.layers",
      "model.width",
      "model.heads",
      "model.context",
      "init.from",
      "data.text",
      "data.tokens",
      "data.tokenizer",
      "data.images",
      "data.order",
      "data.eval",
      "train.steps",
      "train.batch",
      "train.lr",
      "train.warmup",
      "train.schedule",
      "train.eval_every",
      "train.max_time",
      "train.seed",
      "parallel.mesh",
      "parallel.plan",
      "memory.limit",
      "runtime.device",
      "runtime.threads",
      "runtime.trace",
      "model.max_context",
      "runtime.transport",
      "output.dir",
      "output.keep",
      "output.checkpoint_every",
      "output.staging",
      "output.log_every",
  };
  std::set<std::string> known = always;
  for (const std::string& setting : settings()) known.insert(setting.substr(0, setting.find('=')));
  for (const std::string& key : keys_with_conditions()) known.insert(key);
  Config config;
  for (const Key& key : keys_of(config))
    EXPECT_TRUE(known.contains(key.name))
        << key.name
        << ": add values of it to settings(), and the configurations in which it does nothing to unused.cpp";
}

// As the help says: the whole share of a replica, or with pp the largest size that makes 4 micro-batches per stage.
TEST(Effect, MicroBatchesAreChosenByTheNumberOfStages) {
  const struct {
    std::string mesh;
    std::int64_t batch;
    std::int64_t rows;  // of a replica
  } cases[] = {
      {"dp=1", 32, 32}, {"dp=2", 32, 16}, {"pp=2", 32, 4}, {"pp=2,dp=2", 32, 2}, {"pp=3", 36, 3},
      {"pp=4", 8, 1},   {"pp=2", 7, 1},   {"pp=2", 24, 3}, {"dp=2,pp=2", 64, 4}, {"tp=2,pp=2", 30, 3},
  };
  for (const auto& [mesh, batch, rows] : cases) {
    Config config;
    config.parallel.mesh = mesh;
    config.train.batch = batch;
    const std::int64_t replicas = mesh_of(config).size_of("dp");
    EXPECT_EQ(micro_batch_rows(config), rows * replicas) << mesh << " " << batch;
  }
}

}  // namespace
}  // namespace trireme::train
