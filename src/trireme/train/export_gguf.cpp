#include <nlohmann/json.hpp>

#include <algorithm>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/io/gguf_names.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/gguf.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/stored_weight.h"
#include "trireme/train/trained_model.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using io::GgmlType;
using Json = nlohmann::ordered_json;

// llama.cpp's numbers for what most tensors of a file have.
std::uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return 0;
    case GgmlType::f16: return 1;
    case GgmlType::q4_0: return 2;
    case GgmlType::q8_0: return 7;
    case GgmlType::q4_k: return 15;
    case GgmlType::bf16: break;
  }
  return 32;
}

constexpr std::string_view kPositions = "position_embd.weight";

bool whole_blocks(GgmlType type, const Shape& shape) { return shape.back() % io::block_elements(type) == 0; }

GgmlType type_of(const io::GgufParameter& p, GgmlType wanted) {
  if (p.stored.rank() < 2 || p.theirs == kPositions) return GgmlType::f32;
  if (p.table && (wanted == GgmlType::q4_0 || wanted == GgmlType::q4_k)) wanted = GgmlType::q8_0;
  if (wanted == GgmlType::q4_k && !whole_blocks(wanted, p.stored)) wanted = GgmlType::q4_0;
  return whole_blocks(wanted, p.stored) ? wanted : GgmlType::f16;
}

// Why a matrix has another type than `wanted`.
std::string why_other(const io::GgufParameter& p, GgmlType wanted, GgmlType has) {
  if (has == wanted) return "";
  if (p.table && has == GgmlType::q8_0) return "embedding and output layer have 8 bits";
  return fmt::format("rows of {} are no whole blocks of {}", p.stored.back(), io::block_elements(wanted));
}

void add_matrix(GgufExported& out, const io::GgufParameter& p, GgmlType wanted, GgmlType has) {
  const std::string why = why_other(p, wanted, has);
  if (out.matrices.empty()) out.matrices.push_back({wanted, 0, {}, ""});
  auto share = std::find_if(out.matrices.begin(), out.matrices.end(),
                            [&](const GgufExported::Share& s) { return s.type == has && s.why == why; });
  if (share == out.matrices.end()) share = out.matrices.insert(share, {has, 0, {}, why});
  share->bytes += io::ggml_bytes(has, p.stored.elements());
  share->names.push_back(p.theirs);
}

// "a b", whichever of the two forms tokenizer.json has.
std::string merge_text(const Json& merge) {
  if (merge.is_string()) return merge.get<std::string>();
  return merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
}

// How llama.cpp splits text before merging, by the name it has there; "": none that this version knows.
std::string split_name(const Json& json) {
  const std::string text = json.contains("pre_tokenizer") ? json["pre_tokenizer"].dump() : "";
  if (text.find("\"ByteLevel\"") == std::string::npos) return "";
  if (text.find("\"Split\"") == std::string::npos)
    return text.find("\"use_regex\":false") == std::string::npos ? "gpt-2" : "";
  if (text.find("(?i:'s|'t|'re|'ve|'m|'ll|'d)") != std::string::npos && text.find("{1,3}") != std::string::npos)
    return "llama-bpe";
  return "";
}

constexpr std::int64_t kNormal = 1, kControl = 3, kUnused = 5;  // kinds of tokens

void add_tokens(io::GgufMetadata& metadata, std::vector<std::string> tokens, std::vector<std::int64_t> kinds,
                std::vector<std::string> merges, const std::string& split) {
  metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  metadata.emplace_back("tokenizer.ggml.pre", split);
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(kinds));
  metadata.emplace_back("tokenizer.ggml.merges", std::move(merges));
}

// Whether the file has one.
bool add_tokenizer(io::GgufMetadata& metadata, const Config& config, const LogSink& sink) {
  const auto tokenizer = tokenizer_of(config);
  if (tokenizer == nullptr) return false;
  const std::int64_t vocab = config.model.vocab;
  std::vector<std::string> tokens;
  std::vector<std::int64_t> kinds;
  const auto unused = [&](std::int64_t id) {
    tokens.push_back(fmt::format("[unused{}]", id));
    kinds.push_back(kUnused);
  };
  if (tokenizer->json().empty()) {
    for (std::int64_t id = 0; id < vocab; ++id) {
      if (id >= 256) {
        unused(id);
        continue;
      }
      tokens.push_back(data::byte_level_spellings()[static_cast<std::size_t>(id)]);
      kinds.push_back(kNormal);
    }
    add_tokens(metadata, std::move(tokens), std::move(kinds), {}, "gpt-2");
    metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
    return true;
  }
  const Json json = parse_ordered_json(tokenizer->json());
  const std::string split = json.is_object() ? split_name(json) : "";
  if (split.empty() || json["model"].value("type", std::string()) != "BPE") {
    log(sink, LogLevel::warning,
        "the file has no tokenizer for llama.cpp: this version writes byte-level BPE as GPT-2 and Llama 3 have it; "
        "tokenizer.huggingface.json is in it");
    metadata.emplace_back("tokenizer.ggml.model", std::string("no_vocab"));
    metadata.emplace_back("tokenizer.huggingface.json", std::string(tokenizer->json()));
    return false;
  }
  for (std::int64_t id = 0; id < vocab; ++id) {
    const auto token = tokenizer->token_of(static_cast<std::int32_t>(id));
    if (!token) {
      unused(id);
      continue;
    }
    tokens.push_back(*token);
    kinds.push_back(tokenizer->is_special(static_cast<std::int32_t>(id)) ? kControl : kNormal);
  }
  std::vector<std::string> merges;
  for (const Json& merge : json["model"]["merges"]) merges.push_back(merge_text(merge));
  add_tokens(metadata, std::move(tokens), std::move(kinds), std::move(merges), split);
  if (const auto end = tokenizer->end_of_text())
    metadata.emplace_back("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*end));
  metadata.emplace_back("tokenizer.huggingface.json", std::string(tokenizer->json()));
  return true;
}

}  // namespace

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf"; }

GgufExported export_gguf(const fs::path& run, const fs::path& given, const GgufExportOptions& options,
                         const models::Families& families) {
  const fs::path file = behind_links(given.string());
  if (!holds_run(run)) refuse("{}: there is no run in that folder", run.string());
  if (fs::exists(file) && !options.overwrite)
    refuse("{} is there already; give --overwrite to replace it, or another name", file.string());
  check_replaceable(file.string(), "GGUF", "GGUF file", file.string());
  const Config config = load_config(run.string(), {}, families);
  check_writable(file.has_parent_path() ? file.parent_path() : fs::path("."), file.string());
  const GgmlType type = options.type.value_or(GgmlType::f16);
  // Codes are written as what they stand for.
  if (config.memory.weights != StoredWeights::full && !options.type) {
    const bool four = config.memory.weights.text().starts_with("int4");
    log(options.log, LogLevel::warning, "the run stores its weights as {}, and the file has f16; --type {} is as small",
        config.memory.weights, four ? "q4_0" : "q8_0");
  }
  const std::vector<io::GgufParameter> parameters = io::gguf_parameters(config.model, config.names);
  GgufExported out;
  out.step = exported_step(run, options.step, options.log);
  const io::CheckpointReader checkpoint(checkpoint_folder(run, out.step));
  for (const io::GgufParameter& p : parameters) check_stored_weight(checkpoint, p.ours, p.shape);
  io::GgufMetadata metadata = io::gguf_metadata(config.model);
  metadata.emplace_back("general.name", config.name);
  metadata.emplace_back("general.file_type", file_type(type));
  metadata.emplace_back("general.quantization_version", std::uint32_t{2});
  out.tokenizer = add_tokenizer(metadata, config, options.log);
  std::vector<io::GgufTensor> tensors;
  for (const io::GgufParameter& p : parameters) {
    tensors.push_back({p.theirs, p.stored, type_of(p, type)});
    out.parameters += static_cast<std::uint64_t>(p.stored.elements());
    if (p.stored.rank() == 2 && p.theirs != kPositions) add_matrix(out, p, type, tensors.back().type);
  }
  const std::vector<float> factors = io::rope_factors(config.model);
  if (!factors.empty()) tensors.push_back({io::kRopeFactors, {std::ssize(factors)}, GgmlType::f32});
  io::write_gguf(file.string(), metadata, tensors, [&](std::size_t i) {
    if (i == parameters.size()) return factors;
    return io::to_gguf(parameters[i], stored_weight(checkpoint, parameters[i].ours, parameters[i].shape));
  });
  out.type = type;
  out.bytes = fs::file_size(file);
  return out;
}

}  // namespace trireme::train
