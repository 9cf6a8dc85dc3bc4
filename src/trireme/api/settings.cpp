#include "trireme/api/settings.h"

#include <algorithm>

#include "trireme/train/config/keys.h"

namespace trireme {
namespace {

using train::Entry;
using train::Raw;

Raw list(const auto& values) {
  Raw::List items(values.size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i].value = values[i];
  return {items};
}

Raw table(const std::map<std::string, std::string>& values) {
  Raw::Table items;
  for (const auto& [name, value] : values) items.push_back({name, Raw{value}});
  return Raw{items};
}

// A number of steps, or a time.
Raw interval(const std::string& text) {
  const bool steps = !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
  if (steps) return {std::int64_t{std::stoll(text)}};
  return {text};
}

// By way of the text of a configuration, so that each value is held against its rule.
std::vector<Entry> model_entries(const ModelConfig& model) {
  train::Config config;
  config.model = model;
  std::vector<Entry> entries = train::read_toml(train::to_toml(config), "model");
  std::erase_if(entries, [](const Entry& e) { return !e.key.starts_with("model."); });
  return entries;
}

// The keys of one configuration, in order.
struct Settings {
  std::vector<Entry> entries;

  void set(const char* key, Raw value) { entries.push_back({key, std::move(value)}); }
  void set(const char* key, const auto& value) { set(key, Raw{value}); }
};

void add_data(Settings& to, const Data& data) {
  const std::string files = data.files.empty() ? "synthetic" : data.files.front();
  const std::string own = "(made by the program)";
  if (data.kind == Data::Kind::text) to.set("data.text", list(data.files));
  if (data.kind == Data::Kind::tokens) to.set("data.tokens", list(data.own ? std::vector{own} : data.files));
  if (data.kind == Data::Kind::images) to.set("data.images", data.own ? own : files);
  if (!data.tokenizer.empty()) to.set("data.tokenizer", data.tokenizer);
  to.set("data.augment", data.augment);
  to.set("data.token_type", data.token_type);
  to.set("data.order", data.order);
  to.set("data.eval", list(data.eval));
  to.set("data.holdout", data.holdout);
}

void add_training(Settings& to, const TrainOptions& o) {
  to.set("train.steps", o.steps);
  to.set("train.batch", o.batch);
  to.set("train.micro_batch", o.micro_batch);
  to.set("train.optimizer", o.optimizer);
  to.set("train.lr", o.lr);
  to.set("train.min_lr", o.min_lr);
  to.set("train.warmup", o.warmup);
  to.set("train.schedule", o.schedule);
  to.set("train.decay_steps", o.decay_steps);
  to.set("train.momentum", o.momentum);
  to.set("train.eval_every", o.eval_every);
  to.set("train.max_time", o.max_time);
  to.set("train.weight_decay", o.weight_decay);
  to.set("train.betas", list(o.betas));
  to.set("train.eps", o.eps);
  to.set("train.clip", o.clip);
  to.set("train.precision", o.precision);
  to.set("train.loss_scale", o.loss_scale);
  to.set("train.loss_scale_window", o.loss_scale_window);
  to.set("train.seed", o.seed);
  to.set("output.dir", o.dir);
  to.set("output.checkpoint_every", interval(o.checkpoint_every));
  to.set("output.keep", o.keep);
}

void add_plan(Settings& to, const Plan& p) {
  to.set("parallel.mesh", p.mesh);
  to.set("parallel.stages", list(p.stages));
  to.set("parallel.zero", p.zero);
  to.set("parallel.sequence", p.sequence);
  to.set("parallel.pipeline", p.pipeline);
  to.set("parallel.bucket", p.bucket);
  to.set("parallel.overlap", p.overlap);
  to.set("parallel.allreduce", p.allreduce);
  to.set("parallel.compress", p.compress);
  to.set("parallel.server", p.server);
  to.set("parallel.servers", p.servers);
  to.set("parallel.timeout", p.timeout);
  to.set("parallel.seeds", table(p.seeds));
  to.set("memory.remat", p.remat);
  to.set("memory.offload", p.offload);
  to.set("memory.offload_policy", p.offload_policy);
  to.set("memory.offload_tier", p.offload_tier);
  to.set("memory.offload_update", p.offload_update);
  to.set("memory.offload_dir", p.offload_dir);
  to.set("memory.activations", p.activations);
  to.set("memory.limit", p.limit);
  to.set("runtime.device", p.device);
  to.set("runtime.threads", p.threads);
  to.set("runtime.transport", p.transport);
  to.set("runtime.link", p.link);
  to.set("runtime.weight_gradients", p.weight_gradients);
  to.set("runtime.trace", p.trace);
}

}  // namespace

train::Config settings(const Pretrained& from, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families) {
  Settings all;
  all.set("init.from", from.folder);
  all.set("model.context", data.context);
  if (data.vocab > 0) all.set("model.vocab", data.vocab);
  add_data(all, data);
  add_training(all, options);
  add_plan(all, plan);
  return train::make_config(all.entries, options.name, families);
}

train::Config settings(ModelConfig model, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families) {
  model.context = data.context;
  model.vocab = data.vocab;
  model.image = data.image;
  model.channels = data.channels;
  model.classes = data.classes;
  Settings all{model_entries(model)};
  // Image files say what images they hold; a key that is given would be held against them.
  if (data.kind == Data::Kind::images && !data.own && !data.files.empty())
    std::erase_if(all.entries, [](const Entry& e) {
      return e.key == "model.image" || e.key == "model.channels" || e.key == "model.classes";
    });
  add_data(all, data);
  add_training(all, options);
  add_plan(all, plan);
  return train::make_config(all.entries, model.family, families);
}

}  // namespace trireme
