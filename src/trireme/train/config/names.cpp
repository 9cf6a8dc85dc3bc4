#include <algorithm>
#include <array>
#include <cctype>

#include "trireme/core/text.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

// What other systems call things: PyTorch and its trainers, Hugging Face, DeepSpeed, Megatron, llm.c, nanoGPT, JAX.
struct Foreign {
  std::string_view name;
  std::string_view key;
  std::string_view value;  // when the name implies one
};

constexpr auto kForeign = std::to_array<Foreign>({
    {"accelerator", "runtime.device", ""},
    {"accumulate_grad_batches", "train.micro_batch", ""},
    {"activation_checkpointing", "memory.remat", ""},
    {"adam_beta1", "train.betas", ""},
    {"adam_beta2", "train.betas", ""},
    {"adam_epsilon", "train.eps", ""},
    {"adam_eps", "train.eps", ""},
    {"amp", "train.precision", "\"bf16\""},
    {"arch", "model.family", ""},
    {"architecture", "model.family", ""},
    {"backend", "runtime.transport", ""},
    {"base_lr", "train.lr", ""},
    {"batch_size", "train.batch", ""},
    {"beta1", "train.betas", ""},
    {"beta2", "train.betas", ""},
    {"bf16", "train.precision", "\"bf16\""},
    {"bfloat16", "train.precision", "\"bf16\""},
    {"block_size", "model.context", ""},
    {"bucket_cap_mb", "parallel.bucket", ""},
    {"bucket_size", "parallel.bucket", ""},
    {"checkpoint_activations", "memory.remat", ""},
    {"checkpoint_interval", "output.checkpoint_every", ""},
    {"clip_grad", "train.clip", ""},
    {"clip_grad_norm", "train.clip", ""},
    {"compression", "parallel.compress", ""},
    {"cpu_offload", "memory.offload", "\"optimizer\""},
    {"d_model", "model.width", ""},
    {"data_parallel_size", "parallel.mesh", "\"dp=N\""},
    {"data_path", "data.tokens", ""},
    {"dataset", "data.text", ""},
    {"depth", "model.layers", ""},
    {"device_mesh", "parallel.mesh", ""},
    {"dim", "model.width", ""},
    {"dp", "parallel.mesh", "\"dp=N\""},
    {"dropout_rate", "model.dropout", ""},
    {"dtype", "train.precision", ""},
    {"embed_dim", "model.width", ""},
    {"epochs", "train.steps", ""},
    {"epsilon", "train.eps", ""},
    {"eval_interval", "train.eval_every", ""},
    {"eval_steps", "train.eval_every", ""},
    {"ffn_dim", "model.ffn", ""},
    {"ffn_hidden_size", "model.ffn", ""},
    {"fp16", "train.precision", "\"fp16\""},
    {"fp32", "train.precision", "\"f32\""},
    {"fp8", "train.precision", "\"fp8\""},
    {"fsdp", "parallel.zero", "3"},
    {"global_batch_size", "train.batch", ""},
    {"gradient_accumulation_steps", "train.micro_batch", ""},
    {"gradient_checkpointing", "memory.remat", ""},
    {"gradient_clip_val", "train.clip", ""},
    {"gradient_clipping", "train.clip", ""},
    {"grad_accum", "train.micro_batch", ""},
    {"grad_clip", "train.clip", ""},
    {"growth_interval", "train.loss_scale_window", ""},
    {"hidden_dim", "model.width", ""},
    {"hidden_size", "model.width", ""},
    {"image_size", "model.image", ""},
    {"img_size", "model.image", ""},
    {"init_from", "init.from", ""},
    {"init_scale", "train.loss_scale", ""},
    {"initial_loss_scale", "train.loss_scale", ""},
    {"intermediate_size", "model.ffn", ""},
    {"learning_rate", "train.lr", ""},
    {"log_interval", "output.log_every", ""},
    {"logging_steps", "output.log_every", ""},
    {"lr_decay_iters", "train.decay_steps", ""},
    {"lr_decay_style", "train.schedule", ""},
    {"lr_scheduler", "train.schedule", ""},
    {"lr_scheduler_type", "train.schedule", ""},
    {"lr_warmup_iters", "train.warmup", ""},
    {"lr_warmup_steps", "train.warmup", ""},
    {"max_grad_norm", "train.clip", ""},
    {"max_iters", "train.steps", ""},
    {"max_lr", "train.lr", ""},
    {"max_memory", "memory.limit", ""},
    {"max_position_embeddings", "model.context", ""},
    {"max_seq_len", "model.context", ""},
    {"max_steps", "train.steps", ""},
    {"micro_batch_size", "train.micro_batch", ""},
    {"microbatch", "train.micro_batch", ""},
    {"mixed_precision", "train.precision", "\"bf16\""},
    {"mlp_dim", "model.ffn", ""},
    {"model_name_or_path", "init.from", ""},
    {"model_type", "model.family", ""},
    {"n_ctx", "model.context", ""},
    {"n_embd", "model.width", ""},
    {"n_head", "model.heads", ""},
    {"n_heads", "model.heads", ""},
    {"n_inner", "model.ffn", ""},
    {"n_kv_heads", "model.kv_heads", ""},
    {"n_layer", "model.layers", ""},
    {"n_layers", "model.layers", ""},
    {"n_positions", "model.context", ""},
    {"num_attention_heads", "model.heads", ""},
    {"num_classes", "model.classes", ""},
    {"num_epochs", "train.steps", ""},
    {"num_heads", "model.heads", ""},
    {"num_hidden_layers", "model.layers", ""},
    {"num_iterations", "train.steps", ""},
    {"num_key_value_heads", "model.kv_heads", ""},
    {"num_layers", "model.layers", ""},
    {"num_microbatches", "train.micro_batch", ""},
    {"num_query_groups", "model.kv_heads", ""},
    {"num_steps", "train.steps", ""},
    {"num_threads", "runtime.threads", ""},
    {"num_train_epochs", "train.steps", ""},
    {"num_workers", "runtime.threads", ""},
    {"offload_optimizer", "memory.offload", "\"optimizer\""},
    {"offload_param", "memory.offload", "\"weights\""},
    {"optim", "train.optimizer", ""},
    {"out_dir", "output.dir", ""},
    {"output_dir", "output.dir", ""},
    {"overlap_comm", "parallel.overlap", ""},
    {"overlap_grad_reduce", "parallel.overlap", ""},
    {"per_device_train_batch_size", "train.batch", ""},
    {"pipeline_model_parallel_size", "parallel.mesh", "\"pp=N\""},
    {"pipeline_parallel", "parallel.mesh", "\"pp=N\""},
    {"pipeline_parallel_size", "parallel.mesh", "\"pp=N\""},
    {"pp", "parallel.mesh", "\"pp=N\""},
    {"pretrained", "init.from", ""},
    {"random_seed", "train.seed", ""},
    {"recompute", "memory.remat", ""},
    {"recompute_granularity", "memory.remat", ""},
    {"reduce_bucket_size", "parallel.bucket", ""},
    {"rms_norm_eps", "model.norm_eps", ""},
    {"layer_norm_epsilon", "model.norm_eps", ""},
    {"rope_base", "model.rope_theta", ""},
    {"save", "output.dir", ""},
    {"save_dir", "output.dir", ""},
    {"save_interval", "output.checkpoint_every", ""},
    {"save_steps", "output.checkpoint_every", ""},
    {"save_total_limit", "output.keep", ""},
    {"seq_len", "model.context", ""},
    {"seq_length", "model.context", ""},
    {"sequence_length", "model.context", ""},
    {"sequence_parallel", "parallel.sequence", ""},
    {"sharding_strategy", "parallel.zero", ""},
    {"sync_batchnorm", "train.batch_stats", "\"global\""},
    {"tensor_model_parallel_size", "parallel.mesh", "\"tp=N\""},
    {"tensor_parallel", "parallel.mesh", "\"tp=N\""},
    {"tensor_parallel_size", "parallel.mesh", "\"tp=N\""},
    {"tf32", "train.precision", "\"tf32\""},
    {"tie_word_embeddings", "model.tie_embeddings", ""},
    {"torch_dtype", "train.precision", ""},
    {"tp", "parallel.mesh", "\"tp=N\""},
    {"tp_comm_overlap", "parallel.async_tp", ""},
    {"train_batch_size", "train.batch", ""},
    {"train_data", "data.text", ""},
    {"train_iters", "train.steps", ""},
    {"train_micro_batch_size_per_gpu", "train.micro_batch", ""},
    {"validation_split", "data.holdout", ""},
    {"val_data", "data.eval", ""},
    {"virtual_pipeline_model_parallel_size", "parallel.pipeline", "\"interleaved:V\""},
    {"vocab_size", "model.vocab", ""},
    {"warmup_iters", "train.warmup", ""},
    {"warmup_steps", "train.warmup", ""},
    {"wd", "train.weight_decay", ""},
    {"workers", "runtime.threads", ""},
    {"zero_optimization", "parallel.zero", ""},
    {"zero_stage", "parallel.zero", ""},
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
  // First what is near in the section that was named; the section itself makes nothing near.
  const std::string section = wanted.substr(0, dot == std::string::npos ? 0 : dot);
  std::vector<std::string> neighbours;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == section + "." + leaves[i]) neighbours.push_back(leaves[i]);
  if (const auto near = nearest(leaf, neighbours)) return section + "." + *near;
  std::vector<std::string> all = leaves;
  for (const Foreign& foreign : kForeign) all.emplace_back(foreign.name);
  const auto near = nearest(leaf, all);
  if (!near) return std::nullopt;
  if (const Foreign* foreign = find_foreign(*near)) return spelled(*foreign);
  return key_of_leaf(*near);
}

}  // namespace

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

std::optional<std::string> foreign_name(std::string_view name) {
  const Foreign* foreign = find_foreign(normalised(name));
  if (foreign == nullptr) return std::nullopt;
  return spelled(*foreign);
}

std::string hint_for(std::string_view name) {
  if (const auto found = suggestion(name)) return "; did you mean " + *found + "?";
  return {};
}

std::optional<std::string> suggest_key(std::string_view name) {
  auto found = suggestion(name);
  if (found) found->resize(std::min(found->size(), found->find(' ')));
  return found;
}

}  // namespace trireme::train
