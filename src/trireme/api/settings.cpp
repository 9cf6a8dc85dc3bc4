#include "trireme/api/settings.h"

#include <algorithm>

#include "trireme/train/config/keys.h"

namespace trireme {
namespace {

using train::Entry;
using train::Raw;

Raw list(const auto& values) {
  Raw::List items;
  for (const auto& value : values) items.push_back(Raw{value});
  return Raw{items};
}

Raw table(const std::map<std::string, std::string>& values) {
  Raw::Table items;
  for (const auto& [name, value] : values) items.push_back({name, Raw{value}});
  return Raw{items};
}

// A number of steps, or a time.
Raw interval(const std::string& text) {
  const bool steps = !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
  return steps ? Raw{std::int64_t{std::stoll(text)}} : Raw{text};
}

// By way of the text of a configuration, so that each value is held against its rule.
std::vector<Entry> model_entries(const ModelConfig& model) {
  train::Config config;
  config.model = model;
  std::vector<Entry> entries = train::read_toml(train::to_toml(config), "model");
  std::erase_if(entries, [](const Entry& e) { return !e.key.starts_with("model."); });
  return entries;
}

void add_data(std::vector<Entry>& entries, const Data& data) {
  if (data.kind == Data::Kind::text) entries.push_back({"data.text", list(data.files)});
  if (data.kind == Data::Kind::tokens) entries.push_back({"data.tokens", list(data.files)});
  if (data.kind == Data::Kind::images) entries.push_back({"data.images", Raw{std::string("synthetic")}});
  const std::vector<Entry> rest = {{"data.token_type", Raw{data.token_type}},
                                   {"data.order", Raw{data.order}},
                                   {"data.eval", list(data.eval)},
                                   {"data.holdout", Raw{data.holdout}}};
  entries.insert(entries.end(), rest.begin(), rest.end());
}

void add_training(std::vector<Entry>& entries, const TrainOptions& o) {
  const std::vector<Entry> all = {{"train.steps", Raw{o.steps}},
                                  {"train.batch", Raw{o.batch}},
                                  {"train.micro_batch", Raw{o.micro_batch}},
                                  {"train.optimizer", Raw{o.optimizer}},
                                  {"train.lr", Raw{o.lr}},
                                  {"train.min_lr", Raw{o.min_lr}},
                                  {"train.warmup", Raw{o.warmup}},
                                  {"train.schedule", Raw{o.schedule}},
                                  {"train.decay_steps", Raw{o.decay_steps}},
                                  {"train.momentum", Raw{o.momentum}},
                                  {"train.eval_every", Raw{o.eval_every}},
                                  {"train.max_time", Raw{o.max_time}},
                                  {"train.weight_decay", Raw{o.weight_decay}},
                                  {"train.betas", list(o.betas)},
                                  {"train.eps", Raw{o.eps}},
                                  {"train.clip", Raw{o.clip}},
                                  {"train.precision", Raw{o.precision}},
                                  {"train.seed", Raw{o.seed}},
                                  {"output.dir", Raw{o.dir}},
                                  {"output.checkpoint_every", interval(o.checkpoint_every)},
                                  {"output.keep", Raw{o.keep}}};
  entries.insert(entries.end(), all.begin(), all.end());
}

void add_plan(std::vector<Entry>& entries, const Plan& p) {
  const std::vector<Entry> all = {{"parallel.mesh", Raw{p.mesh}},
                                  {"parallel.stages", list(p.stages)},
                                  {"parallel.zero", Raw{p.zero}},
                                  {"parallel.sequence", Raw{p.sequence}},
                                  {"parallel.pipeline", Raw{p.pipeline}},
                                  {"parallel.bucket", Raw{p.bucket}},
                                  {"parallel.overlap", Raw{p.overlap}},
                                  {"parallel.allreduce", Raw{p.allreduce}},
                                  {"parallel.compress", Raw{p.compress}},
                                  {"parallel.server", Raw{p.server}},
                                  {"parallel.servers", Raw{p.servers}},
                                  {"parallel.timeout", Raw{p.timeout}},
                                  {"parallel.seeds", table(p.seeds)},
                                  {"memory.remat", Raw{p.remat}},
                                  {"memory.offload", Raw{p.offload}},
                                  {"memory.offload_policy", Raw{p.offload_policy}},
                                  {"memory.offload_tier", Raw{p.offload_tier}},
                                  {"memory.activations", Raw{p.activations}},
                                  {"memory.limit", Raw{p.limit}},
                                  {"runtime.device", Raw{p.device}},
                                  {"runtime.threads", Raw{p.threads}},
                                  {"runtime.transport", Raw{p.transport}},
                                  {"runtime.link", Raw{p.link}},
                                  {"runtime.trace", Raw{p.trace}}};
  entries.insert(entries.end(), all.begin(), all.end());
}

}  // namespace

train::Config settings(ModelConfig model, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families) {
  model.context = data.context;
  model.vocab = data.vocab;
  model.image = data.image;
  model.channels = data.channels;
  model.classes = data.classes;
  std::vector<Entry> entries = model_entries(model);
  add_data(entries, data);
  add_training(entries, options);
  add_plan(entries, plan);
  return train::make_config(entries, model.family, families);
}

}  // namespace trireme
