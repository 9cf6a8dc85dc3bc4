#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "trireme/core/aside.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/io/hf_config.h"
#include "trireme/io/hf_names.h"
#include "trireme/io/safetensors.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/convert.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/stored_weight.h"
#include "trireme/train/trained_model.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// One of our tensors, given out as theirs.
class Producer {
 public:
  Producer(const io::CheckpointReader& checkpoint, const io::HfTensor& tensor, DType dtype)
      : checkpoint_(checkpoint), tensor_(tensor), dtype_(dtype) {}

  void operator()(const io::TensorToStream::Take& take) const {
    const std::vector<float> values = stored_weight(checkpoint_, tensor_.ours, tensor_.shape);
    dispatch_compute(dtype_, [&](auto zero) { give<decltype(zero)>(values.data(), take); });
  }

 private:
  template <class T>
  void give(const float* values, const io::TensorToStream::Take& take) const {
    constexpr std::size_t kPiece = std::size_t{1} << 16;
    const std::int64_t columns = tensor_.stored.back();
    const std::int64_t rows = tensor_.stored.elements() / columns;
    std::vector<T> piece;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        piece.push_back(converted<T>(values[tensor_.transposed ? column * rows + row : row * columns + column]));
      if (piece.size() < kPiece && row + 1 < rows) continue;
      take(std::as_bytes(std::span<const T>(piece)));
      piece.clear();
    }
  }

  template <class T>
  T converted(float value) const {
    const T result(value);
    if (std::isfinite(value) && !std::isfinite(static_cast<float>(result)))
      fail("{} holds {}, which {} cannot; export with --dtype bf16 or f32", tensor_.ours, value, name_of(dtype_));
    return result;
  }

  const io::CheckpointReader& checkpoint_;
  const io::HfTensor& tensor_;
  DType dtype_;
};

// Consecutive tensors that share a file; one that is larger than the limit has its own.
std::vector<std::span<const io::HfTensor>> shards(const std::vector<io::HfTensor>& tensors, DType dtype,
                                                  std::uint64_t most) {
  std::vector<std::span<const io::HfTensor>> result;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = TensorType{dtype, tensors[i].stored}.bytes();
    if (i > first && bytes + size > most) {
      result.push_back(std::span(tensors).subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += size;
  }
  result.push_back(std::span(tensors).subspan(first));
  return result;
}

void write_weights(const fs::path& folder, const io::CheckpointReader& checkpoint,
                   const std::vector<io::HfTensor>& tensors, const ExportOptions& options, Exported& out) {
  const auto parts = shards(tensors, options.dtype, options.max_shard);
  nlohmann::ordered_json map;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::string name = parts.size() == 1 ? std::string("model.safetensors")
                                               : fmt::format("model-{:05}-of-{:05}.safetensors", p + 1, parts.size());
    std::vector<io::TensorToStream> streams;
    for (const io::HfTensor& tensor : parts[p]) {
      const TensorType type{options.dtype, tensor.stored};
      streams.push_back({tensor.theirs, type, Producer(checkpoint, tensor, options.dtype)});
      map[tensor.theirs] = name;
      out.bytes += type.bytes();
      out.parameters += static_cast<std::uint64_t>(type.elements());
    }
    io::stream_safetensors((folder / name).string(), streams, {{"format", "pt"}});
    out.files.push_back(name);
  }
  if (parts.size() == 1) return;
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", out.bytes}}}, {"weight_map", map}};
  write_file_atomically((folder / "model.safetensors.index.json").string(), index.dump(2) + "\n");
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Bytes as the tokens of a byte-level BPE without merges, each with its own value as its number.
std::string byte_tokenizer_json() {
  nlohmann::ordered_json vocabulary = nlohmann::ordered_json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocabulary[data::byte_level_spellings()[byte]] = byte;
  const nlohmann::ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::ordered_json tokenizer = {{"version", "1.0"},
                                            {"truncation", nullptr},
                                            {"padding", nullptr},
                                            {"added_tokens", nlohmann::ordered_json::array()},
                                            {"normalizer", nullptr},
                                            {"pre_tokenizer", level},
                                            {"post_processor", nullptr},
                                            {"decoder", level},
                                            {"model",
                                             {{"type", "BPE"},
                                              {"dropout", nullptr},
                                              {"unk_token", nullptr},
                                              {"continuing_subword_prefix", nullptr},
                                              {"end_of_word_suffix", nullptr},
                                              {"fuse_unk", false},
                                              {"byte_fallback", false},
                                              {"vocab", vocabulary},
                                              {"merges", nlohmann::ordered_json::array()}}}};
  return tokenizer.dump(1) + "\n";
}

// For a run whose tokenizer came without the tokenizer files of transformers.
void write_tokenizer(const Config& config, const fs::path& folder, const LogSink& sink) {
  const auto tokenizer = tokenizer_of(config);
  if (tokenizer == nullptr) {
    log(sink, LogLevel::warning,
        "the folder has no tokenizer, since the run names none (data.tokenizer): put the files of the one that made "
        "its tokens there");
    return;
  }
  const bool bytes = tokenizer->json().empty();
  nlohmann::ordered_json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                     {"model_max_length", config.model.context}};
  if (const auto end = tokenizer->end_of_text()) {
    settings["eos_token"] = tokenizer->token_of(*end).value();
    const nlohmann::ordered_json generation = {{"_from_model_config", true}, {"eos_token_id", *end}};
    write_file_atomically((folder / "generation_config.json").string(), generation.dump(2) + "\n");
  }
  write_file_atomically((folder / "tokenizer.json").string(),
                        bytes ? byte_tokenizer_json() : std::string(tokenizer->json()));
  write_file_atomically((folder / "tokenizer_config.json").string(), settings.dump(2) + "\n");
}

// "model-00001-of-00003.safetensors"
bool is_weights_shard(std::string_view name) {
  constexpr std::string_view kForm = "model-#####-of-#####.safetensors";
  return name.size() == kForm.size() && std::equal(name.begin(), name.end(), kForm.begin(), [](char c, char form) {
           return form == '#' ? c >= '0' && c <= '9' : c == form;
         });
}

bool is_exported(std::string_view name) {
  return name == "config.json" || name == "model.safetensors" || name == "model.safetensors.index.json" ||
         is_weights_shard(name) || is_tokenizer_file(name);
}

// Only what an export made, or could have made, is ever replaced.
void check_target(const fs::path& folder, bool overwrite) {
  if (!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder))) return;
  if (!fs::is_directory(folder)) refuse("{} is there already and not a folder", folder.string());
  if (!is_huggingface_folder(folder))
    refuse("{} holds something else than a Hugging Face folder, which is not replaced; name another folder",
           folder.string());
  if (!overwrite)
    refuse("{} holds a Hugging Face folder already; give --overwrite to replace it, or another folder",
           folder.string());
  std::set<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); entry.is_directory() || !is_exported(name))
      others.insert(name);
  if (!others.empty())
    refuse(
        "--overwrite replaces {} as a whole, and {}{} in it is not of an export; move that away or name another folder",
        folder.string(), *others.begin(), others.size() == 1 ? "" : fmt::format(" (and {} more)", others.size() - 1));
}

// A folder next to the target, under a name that nothing else uses; gone with this object unless it took the target's
// place.
class Aside {
 public:
  explicit Aside(fs::path target) : target_(std::move(target)) {
    remove_abandoned_folders(target_.string(), kExport);
    path_ = make_aside_folder(target_.string(), kExport);
  }
  ~Aside() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  const fs::path& path() const { return path_; }
  void commit() {
    sync_folder(path_.string());
    // At every moment one of them has the target's name; the old one is then removed with this object.
    if (!fs::exists(target_) || !exchange_names(path_.string(), target_.string())) {
      const fs::path old = path_.string() + "-old";
      if (fs::exists(target_)) fs::rename(target_, old);
      fs::rename(path_, target_);
      path_ = old;
    }
    sync_folder(target_.has_parent_path() ? target_.parent_path().string() : ".");
  }

 private:
  static constexpr std::string_view kExport = "export";
  fs::path target_;
  fs::path path_;
};

}  // namespace

std::int64_t exported_step(const fs::path& run, std::optional<std::int64_t> given, const LogSink& log) {
  if (given) check_checkpoint(run, *given);
  const auto step = given ? given : newest_checkpoint(run, log);
  if (!step) refuse("{}: the run has no checkpoint", run.string());
  return *step;
}

Exported export_huggingface(const fs::path& run, const fs::path& given, const ExportOptions& options,
                            const models::Families& families) {
  if (!holds_run(run)) refuse("{}: there is no run in that folder", run.string());
  fs::path folder = given.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  folder = behind_links(folder.string());
  check_target(folder, options.overwrite);
  check_writable(folder, folder.string());
  const Config config = load_config(run.string(), {}, families);
  const std::vector<io::HfTensor> tensors = io::hf_tensors(config.model, config.names);
  Exported out;
  out.step = exported_step(run, options.step, options.log);
  const io::CheckpointReader checkpoint(checkpoint_folder(run, out.step));
  try {
    for (const io::HfTensor& tensor : tensors) check_stored_weight(checkpoint, tensor.ours, tensor.shape);
  } catch (Error& e) {
    throw e.within(checkpoint_folder(run, out.step).string());
  }
  try {
    Aside aside(folder);
    if (!copy_tokenizer_files(run, aside.path())) write_tokenizer(config, aside.path(), options.log);
    write_weights(aside.path(), checkpoint, tensors, options, out);
    write_file_atomically(
        (aside.path() / "config.json").string(),
        io::hf_config_json(config.model, options.dtype, text_of(aside.path() / "generation_config.json")));
    aside.commit();
  } catch (const fs::filesystem_error& e) {
    fail("{} cannot be written: {}", folder.string(), e.code().message());
  }
  return out;
}

}  // namespace trireme::train
