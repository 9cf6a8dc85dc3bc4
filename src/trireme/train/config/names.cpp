#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

// What other systems call things; in lower case, with underscores.
struct Foreign {
  std::string_view name;
  std::string_view key;
  std::string_view value;    // when the name implies one
  std::string_view systems;  // of kSystems, by letter; a name that none of them has is only for suggestions
};

constexpr auto kForeign = std::to_array<Foreign>({
    {"accelerator", "runtime.device", "", "P"},
    {"accumulate_grad_batches", "train.micro_batch", "", "P"},
    {"activation_checkpointing", "memory.remat", "", "D"},
    {"adam_beta1", "train.betas", "", "HM"},
    {"adam_beta2", "train.betas", "", "HM"},
    {"adam_eps", "train.eps", "", "M"},
    {"adam_epsilon", "train.eps", "", "H"},
    {"amp", "train.precision", "\"bf16\"", "P"},
    {"arch", "model.family", "", "P"},
    {"architecture", "model.family", "", ""},
    {"backend", "runtime.transport", "", "P"},
    {"base_lr", "train.lr", "", ""},
    {"batch_size", "train.batch", "", "PN"},
    {"beta1", "train.betas", "", "N"},
    {"beta2", "train.betas", "", "N"},
    {"bf16", "train.precision", "\"bf16\"", "HMD"},
    {"bfloat16", "train.precision", "\"bf16\"", ""},
    {"block_size", "model.context", "", "N"},
    {"bucket_cap_mb", "parallel.bucket", "", "P"},
    {"bucket_size", "parallel.bucket", "", ""},
    {"checkpoint_activations", "memory.remat", "", "M"},
    {"checkpoint_interval", "output.checkpoint_every", "", ""},
    {"clip_grad", "train.clip", "", "M"},
    {"clip_grad_norm", "train.clip", "", "P"},
    {"compression", "parallel.compress", "", ""},
    {"cpu_checkpointing", "memory.offload", "\"activations\"", "D"},
    {"cpu_offload", "memory.offload", "\"optimizer\"", "P"},
    {"d_model", "model.width", "", ""},
    {"data_parallel_size", "parallel.mesh", "\"dp=N\"", "M"},
    {"data_path", "data.tokens", "", "M"},
    {"dataset", "data.text", "", "N"},
    {"ddp", "parallel.mesh", "\"dp=N\"", "P"},
    {"depth", "model.layers", "", ""},
    {"device_mesh", "parallel.mesh", "", "P"},
    {"dim", "model.width", "", ""},
    {"directory", "output.dir", "", ""},
    {"distribute_saved_activations", "memory.activations", "\"sharded\"", "M"},
    {"dp", "parallel.mesh", "\"dp=N\"", ""},
    {"dropout_rate", "model.dropout", "", ""},
    {"dtype", "train.precision", "", "PN"},
    {"embed_dim", "model.width", "", "P"},
    {"epochs", "train.steps", "", ""},
    {"epsilon", "train.eps", "", ""},
    {"eval_interval", "train.eval_every", "", "MN"},
    {"eval_steps", "train.eval_every", "", "H"},
    {"ffn_dim", "model.ffn", "", ""},
    {"ffn_hidden_size", "model.ffn", "", "M"},
    {"folder", "output.dir", "", ""},
    {"fp16", "train.precision", "\"fp16\"", "HMD"},
    {"fp32", "train.precision", "\"f32\"", ""},
    {"fp8", "train.precision", "\"fp8\"", ""},
    {"fsdp", "parallel.zero", "3", "PH"},
    {"fully_shard", "parallel.zero", "3", "P"},
    {"global_batch_size", "train.batch", "", "M"},
    {"grad_accum", "train.micro_batch", "", ""},
    {"grad_clip", "train.clip", "", "N"},
    {"gradient_accumulation_steps", "train.micro_batch", "", "HDN"},
    {"gradient_checkpointing", "memory.remat", "", "H"},
    {"gradient_clip_val", "train.clip", "", "P"},
    {"gradient_clipping", "train.clip", "", "D"},
    {"growth_interval", "train.loss_scale_window", "", "P"},
    {"hidden_dim", "model.width", "", ""},
    {"hidden_size", "model.width", "", "HM"},
    {"image_size", "model.image", "", "H"},
    {"img_size", "model.image", "", ""},
    {"init_from", "init.from", "", "N"},
    {"init_scale", "train.loss_scale", "", "P"},
    {"initial_loss_scale", "train.loss_scale", "", "M"},
    {"intermediate_size", "model.ffn", "", "H"},
    {"layer_norm_epsilon", "model.norm_eps", "", "H"},
    {"learning_rate", "train.lr", "", "HN"},
    {"log_interval", "output.log_every", "", "MN"},
    {"logging_steps", "output.log_every", "", "H"},
    {"lr_decay_iters", "train.decay_steps", "", "MN"},
    {"lr_decay_style", "train.schedule", "", "M"},
    {"lr_scheduler", "train.schedule", "", "P"},
    {"lr_scheduler_type", "train.schedule", "", "H"},
    {"lr_warmup_iters", "train.warmup", "", "M"},
    {"lr_warmup_steps", "train.warmup", "", ""},
    {"max_grad_norm", "train.clip", "", "H"},
    {"max_iters", "train.steps", "", "N"},
    {"max_lr", "train.lr", "", "P"},
    {"max_memory", "memory.limit", "", ""},
    {"max_position_embeddings", "model.context", "", "HM"},
    {"max_seq_len", "model.context", "", ""},
    {"max_steps", "train.steps", "", "HP"},
    {"micro_batch_size", "train.micro_batch", "", "M"},
    {"microbatch", "train.micro_batch", "", ""},
    {"mixed_precision", "train.precision", "\"bf16\"", "PH"},
    {"mlp_dim", "model.ffn", "", ""},
    {"model_name_or_path", "init.from", "", "H"},
    {"model_type", "model.family", "", "H"},
    {"n_ctx", "model.context", "", ""},
    {"n_embd", "model.width", "", "HN"},
    {"n_head", "model.heads", "", "HN"},
    {"n_heads", "model.heads", "", ""},
    {"n_inner", "model.ffn", "", "H"},
    {"n_kv_heads", "model.kv_heads", "", ""},
    {"n_layer", "model.layers", "", "HN"},
    {"n_layers", "model.layers", "", ""},
    {"n_positions", "model.context", "", "H"},
    {"norm_epsilon", "model.norm_eps", "", "M"},
    {"num_attention_heads", "model.heads", "", "HM"},
    {"num_classes", "model.classes", "", "P"},
    {"num_epochs", "train.steps", "", ""},
    {"num_heads", "model.heads", "", "P"},
    {"num_hidden_layers", "model.layers", "", "H"},
    {"num_iterations", "train.steps", "", "N"},
    {"num_key_value_heads", "model.kv_heads", "", "H"},
    {"num_layers", "model.layers", "", "M"},
    {"num_microbatches", "train.micro_batch", "", ""},
    {"num_query_groups", "model.kv_heads", "", "M"},
    {"num_steps", "train.steps", "", ""},
    {"num_threads", "runtime.threads", "", "P"},
    {"num_train_epochs", "train.steps", "", "H"},
    {"num_workers", "runtime.threads", "", "P"},
    {"offload_optimizer", "memory.offload", "\"optimizer\"", "D"},
    {"offload_param", "memory.offload", "\"weights\"", "D"},
    {"onebitadam", "parallel.compress", "\"onebit\"", "D"},
    {"optim", "train.optimizer", "", "H"},
    {"out_dir", "output.dir", "", "N"},
    {"output_dir", "output.dir", "", "H"},
    {"overlap_comm", "parallel.overlap", "", "D"},
    {"overlap_grad_reduce", "parallel.overlap", "", "M"},
    {"partition_activations", "memory.activations", "\"sharded\"", "D"},
    {"per_device_train_batch_size", "train.batch", "", "H"},
    {"pipeline_model_parallel_size", "parallel.mesh", "\"pp=N\"", "M"},
    {"pipeline_parallel", "parallel.mesh", "\"pp=N\"", ""},
    {"pipeline_parallel_size", "parallel.mesh", "\"pp=N\"", ""},
    {"powersgd_hook", "parallel.compress", "\"powersgd:4\"", "P"},
    {"pp", "parallel.mesh", "\"pp=N\"", ""},
    {"pretrained", "init.from", "", ""},
    {"random_seed", "train.seed", "", ""},
    {"recompute", "memory.remat", "", ""},
    {"recompute_granularity", "memory.remat", "", "M"},
    {"reduce_bucket_size", "parallel.bucket", "", "D"},
    {"reset_attention_mask", "model.document_end", "", "M"},
    {"rms_norm_eps", "model.norm_eps", "", "H"},
    {"rope_base", "model.rope_theta", "", ""},
    {"rotary_base", "model.rope_theta", "", "M"},
    {"save", "output.dir", "", "M"},
    {"save_dir", "output.dir", "", ""},
    {"save_interval", "output.checkpoint_every", "", "M"},
    {"save_steps", "output.checkpoint_every", "", "H"},
    {"save_total_limit", "output.keep", "", "H"},
    {"schedule1f1b", "parallel.pipeline", "\"1f1b\"", "P"},
    {"schedulegpipe", "parallel.pipeline", "\"gpipe\"", "P"},
    {"scheduleinterleaved1f1b", "parallel.pipeline", "\"interleaved:V\"", "P"},
    {"seq_len", "model.context", "", ""},
    {"seq_length", "model.context", "", "M"},
    {"sequence_length", "model.context", "", ""},
    {"sequence_parallel", "parallel.sequence", "", "M"},
    {"sharding_strategy", "parallel.zero", "", "P"},
    {"sync_batchnorm", "train.batch_stats", "\"global\"", "P"},
    {"tensor_model_parallel_size", "parallel.mesh", "\"tp=N\"", "M"},
    {"tensor_parallel", "parallel.mesh", "\"tp=N\"", "D"},
    {"tensor_parallel_size", "parallel.mesh", "\"tp=N\"", ""},
    {"tf32", "train.precision", "\"tf32\"", "H"},
    {"tie_word_embeddings", "model.tie_embeddings", "", "H"},
    {"torch_dtype", "train.precision", "", "H"},
    {"tp", "parallel.mesh", "\"tp=N\"", ""},
    {"tp_comm_overlap", "parallel.async_tp", "", "M"},
    {"train_batch_size", "train.batch", "", "D"},
    {"train_data", "data.text", "", ""},
    {"train_iters", "train.steps", "", "M"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch", "", "D"},
    {"untie_embeddings_and_output_weights", "model.tie_embeddings", "false", "M"},
    {"use_distributed_optimizer", "parallel.zero", "1", "M"},
    {"val_data", "data.eval", "", ""},
    {"validation_split", "data.holdout", "", ""},
    {"virtual_pipeline_model_parallel_size", "parallel.pipeline", "\"interleaved:V\"", "M"},
    {"vocab_size", "model.vocab", "", "HM"},
    {"warmup_iters", "train.warmup", "", "N"},
    {"warmup_steps", "train.warmup", "", "H"},
    {"wd", "train.weight_decay", "", ""},
    {"workers", "runtime.threads", "", ""},
    {"zero_optimization", "parallel.zero", "", "D"},
    {"zero_stage", "parallel.zero", "", ""},
});

// What other systems have and Trireme has not: the names of it, and what there is instead.
struct Absent {
  std::string_view name;
  std::string_view what;
};
constexpr std::string_view kContextParallelism =
    "there is no context parallelism; parallel.sequence shards positions over tp, outside attention";
constexpr std::string_view kExpertParallelism = "there are no mixtures of experts, and no axis for them";
constexpr auto kAbsent = std::to_array<Absent>({
    {"context_parallel", kContextParallelism},
    {"context_parallel_size", kContextParallelism},
    {"cp", kContextParallelism},
    {"cp_size", kContextParallelism},
    {"ring_attention", kContextParallelism},
    {"expert_model_parallel_size", kExpertParallelism},
    {"expert_parallel_size", kExpertParallelism},
    {"num_experts", kExpertParallelism},
});

// What keys were called before.
struct Renamed {
  std::string_view before;
  std::string_view now;
};
constexpr auto kRenamed = std::to_array<Renamed>({
    {"parallel.seeds", "parallel.sharding"},
    {"runtime.weight_gradients", "runtime.overlap_wgrad"},
});

std::string normalised(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

const Foreign* find_foreign(std::string_view leaf) {
  const auto* found = std::find_if(kForeign.begin(), kForeign.end(), [&](const Foreign& f) { return f.name == leaf; });
  return found == kForeign.end() ? nullptr : found;
}

std::string spelled(const Foreign& foreign) {
  std::string result(foreign.key);
  if (!foreign.value.empty()) result += " = " + std::string(foreign.value);
  return result;
}

// A key, with a value where the name implies one.
std::optional<std::string> suggestion(std::string_view name) {
  const std::string wanted = normalised(name);
  const std::size_t dot = wanted.rfind('.');
  const std::string leaf = dot == std::string::npos ? wanted : wanted.substr(dot + 1);
  Config defaults;
  std::vector<std::string> names;
  std::vector<std::string> leaves;
  for (const Key& key : keys_of(defaults)) {
    names.push_back(key.name);
    leaves.push_back(key.leaf());
  }
  const auto key_of_leaf = [&](const std::string& l) {
    return names[static_cast<std::size_t>(std::find(leaves.begin(), leaves.end(), l) - leaves.begin())];
  };
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return wanted;
  if (std::find(leaves.begin(), leaves.end(), leaf) != leaves.end()) return key_of_leaf(leaf);
  if (const Foreign* foreign = find_foreign(leaf)) return spelled(*foreign);
  // "zero_optimization.stage": what it is in says more than its own name.
  if (dot != std::string::npos)
    if (const Foreign* foreign = find_foreign(wanted.substr(0, wanted.find('.')))) return spelled(*foreign);
  // First what is near in the section that was named; the section itself makes nothing near.
  const std::string section = wanted.substr(0, dot == std::string::npos ? 0 : dot);
  std::vector<std::string> neighbours;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == section + "." + leaves[i]) neighbours.push_back(leaves[i]);
  if (const auto near = nearest(leaf, neighbours)) return section + "." + *near;
  // A section that is named rightly is meant: what only looks like a name of another one is not near.
  if (!neighbours.empty()) return std::nullopt;
  std::vector<std::string> all = leaves;
  for (const Foreign& foreign : kForeign) all.emplace_back(foreign.name);
  const auto near = nearest(leaf, all);
  if (!near) return std::nullopt;
  if (const Foreign* foreign = find_foreign(*near)) return spelled(*foreign);
  return key_of_leaf(*near);
}

struct System {
  char letter;
  const char* title;
};
constexpr std::array<System, 5> kSystems = {{{'P', "PyTorch, Lightning"},
                                             {'H', "Hugging Face"},
                                             {'M', "Megatron-LM"},
                                             {'D', "DeepSpeed"},
                                             {'N', "nanoGPT, llm.c"}}};

constexpr std::string_view kBeginning =
    "# Names\n"
    "\n"
    "For people who come from another system: what it calls an option, and the key here. Written by `trireme config\n"
    "--names` from the table that also answers a wrong key (`--gradient-checkpointing`: did you mean memory.remat?); "
    "a\n"
    "test compares the two. What each key means is in [options.md](options.md). Names are in lower case with\n"
    "underscores; a value in brackets is the one that the name stands for.\n";

// The names that a system has for a key: "`bf16` (\"bf16\")".
std::string names_in(char system, const std::string& key) {
  std::string names;
  for (const Foreign& f : kForeign) {
    if (f.key != key || f.systems.find(system) == std::string_view::npos) continue;
    names += fmt::format("{}`{}`{}", names.empty() ? "" : ", ", f.name,
                         f.value.empty() ? "" : fmt::format(" ({})", f.value));
  }
  return names;
}

}  // namespace

std::string names_page() {
  std::string text(kBeginning);
  std::string section;
  Config defaults;
  for (const Key& key : keys_of(defaults)) {
    std::string row;
    bool any = false;
    for (const System& system : kSystems) {
      const std::string names = names_in(system.letter, key.name);
      any = any || !names.empty();
      row += fmt::format(" {} |", names);
    }
    if (!any) continue;
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("\n## [{}]\n\n| key |", section);
      for (const System& system : kSystems) text += fmt::format(" {} |", system.title);
      text += "\n|---|---|---|---|---|---|\n";
    }
    text += fmt::format("| `{}` |{}\n", key.name, row);
  }
  return text;
}

std::optional<std::string> renamed(std::string_view key) {
  for (const Renamed& one : kRenamed) {
    const std::string_view rest = key.starts_with(one.before) ? key.substr(one.before.size()) : "-";
    if (rest.empty() || rest.starts_with('.')) return std::string(one.now) + std::string(rest);
  }
  return std::nullopt;
}

Raw current_value(std::string_view key, const Raw& value) {
  const auto* word = std::get_if<std::string>(&value.value);
  if (key != "runtime.overlap_wgrad" || word == nullptr) return value;
  if (*word == "beside") return {true};
  if (*word == "in_line") return {false};
  return value;
}

namespace {

// Words for a value that are no misspelling of it.
struct ForeignValue {
  std::string_view key;
  std::string_view word;
  std::string_view value;
};
constexpr auto kForeignValues = std::to_array<ForeignValue>({
    {"runtime.device", "gpu", "cuda"},
    {"train.precision", "float32", "f32"},
    {"train.precision", "float", "f32"},
    {"train.precision", "single", "f32"},
    {"train.precision", "float16", "fp16"},
    {"train.precision", "half", "fp16"},
    {"train.precision", "bfloat16", "bf16"},
    {"train.precision", "float8", "fp8"},
    {"memory.offload", "everything", "all"},
    {"memory.offload", "params", "weights"},
    {"memory.offload", "parameters", "weights"},
    {"memory.offload", "optim", "optimizer"},
    {"memory.offload", "optimizer_states", "optimizer"},
});

std::optional<std::string> foreign_value(std::string_view key, std::string_view word) {
  for (const ForeignValue& foreign : kForeignValues)
    if (foreign.key == key && foreign.word == word) return std::string(foreign.value);
  return std::nullopt;
}

// Keys whose value is one word of `alone`, or some of `together` with commas between them.
struct ListValues {
  std::string_view key;
  std::vector<std::string> alone;
  std::vector<std::string> together;
};
const std::array<ListValues, 2>& list_values() {
  static const std::array<ListValues, 2> all = {
      {{"memory.offload", {"none", "all"}, {"activations", "weights", "optimizer"}},
       {"data.augment", {"auto", "none"}, {"crop", "flip"}}}};
  return all;
}

// "optimiser weight" → "optimizer,weights"; nothing where a part is near to none of the words.
std::optional<std::string> as_list(const ListValues& values, std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(text) + ",") {
    if (c != ',' && c != '+' && c != ' ' && c != '|') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  std::vector<std::string> every = values.together;
  if (words.size() == 1) every.insert(every.begin(), values.alone.begin(), values.alone.end());
  for (std::string& one : words) {
    const auto near = nearest(foreign_value(values.key, one).value_or(one), every);
    if (!near) return std::nullopt;
    one = *near;
  }
  if (words.empty()) return std::nullopt;
  // None is said twice.
  std::vector<std::string> once;
  for (const std::string& one : words)
    if (std::find(once.begin(), once.end(), one) == once.end()) once.push_back(one);
  return fmt::format("{}", fmt::join(once, ","));
}

// "8gb" → "8GB", "8g" → "8GiB"
std::optional<std::string> as_size(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  if (const std::size_t at = text.find("IB"); at != std::string::npos) text[at] = 'i';
  for (const char* unit : {"", "iB", "B"})
    if (parse_bytes(text + unit).value_or(0) > 0) return text + unit;
  return std::nullopt;
}

// "tp2" or "tp:2,dp:4" → "tp=2,dp=4"
std::optional<std::string> as_mesh(std::string_view text) {
  std::vector<std::string> axes;
  for (const std::string& part : split(text, ',')) {
    const std::string axis(trim(part));
    const std::size_t letters = std::min(axis.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), axis.size());
    const std::size_t digits = std::min(axis.find_first_of("0123456789*"), axis.size());
    if (letters == 0 || digits == axis.size()) return std::nullopt;
    axes.push_back(axis.substr(0, letters) + "=" + axis.substr(digits));
  }
  std::string mesh = fmt::format("{}", fmt::join(axes, ","));
  return mesh != text ? std::optional(std::move(mesh)) : std::nullopt;
}

}  // namespace

std::optional<std::string> meant_value(const Key& key, const std::string& given) {
  std::string word = given;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const ListValues& values : list_values())
    if (values.key == key.name) return as_list(values, word);
  if (auto meant = foreign_value(key.name, word)) return meant;
  if (key.name == "parallel.mesh") {
    auto mesh = as_mesh(given);
    return mesh && key.rule.valid(*mesh) ? mesh : std::nullopt;
  }
  if (std::holds_alternative<Bytes*>(key.field) || std::holds_alternative<AutoBytes*>(key.field)) return as_size(given);
  return nearest(word, key.rule.choices);
}

std::optional<std::string> foreign_name(std::string_view name) {
  const Foreign* foreign = find_foreign(normalised(name));
  if (foreign == nullptr) return std::nullopt;
  std::string value(foreign->value);
  std::erase(value, '"');
  return fmt::format("{}{}{}", foreign->key, value.empty() ? "" : "=", value);
}

std::optional<std::string> why_absent(std::string_view name) {
  const std::string wanted = normalised(name);
  const std::string leaf = wanted.substr(wanted.rfind('.') + 1);
  for (const Absent& absent : kAbsent)
    if (absent.name == leaf) return std::string(absent.what);
  return std::nullopt;
}

std::string hint_for(std::string_view name) {
  if (const auto why = why_absent(name)) return "; " + *why;
  if (const auto found = suggestion(name)) return "; did you mean " + *found + "?";
  return {};
}

std::optional<std::string> suggest_key(std::string_view name) {
  auto found = suggestion(name);
  if (found) found->resize(std::min(found->size(), found->find(' ')));
  return found;
}

}  // namespace trireme::train
