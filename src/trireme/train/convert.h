#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/dtype.h"
#include "trireme/core/log.h"
#include "trireme/train/config.h"

namespace trireme::train {

// Between Hugging Face folders and run folders, without compiling a program: an import holds the model's weights once,
// an export one tensor at a time.

struct ImportOptions {
  bool overwrite = false;    // replace a run that is there
  std::string command = {};  // for run.json
  LogSink log = {};
};
struct Imported {
  std::uint64_t parameters = 0;
  bool tokenizer = false;
};
// Makes the run folder `run` of a configuration that was loaded from a Hugging Face folder (init.from): config.toml,
// run.json, a checkpoint of step 0 with the folder's weights, and its tokenizer's files. Training can be resumed from
// it, and it can be generated from.
Imported import_huggingface(Config config, const std::filesystem::path& run, const ImportOptions& options,
                            const models::Families& families = models::builtin_families());

struct ExportOptions {
  std::optional<std::int64_t> step = {};  // absent: the newest checkpoint
  DType dtype = DType::f32;               // of the weights: f32, bf16 or f16
  std::uint64_t max_shard = 5'000'000'000;
  bool overwrite = false;  // replace a Hugging Face folder that is there, and holds nothing else
  LogSink log = {};
};
struct Exported {
  std::int64_t step = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;              // of weights
  std::vector<std::string> files = {};  // of weights
};
// Writes a checkpoint of a run as a folder that transformers loads: config.json, model.safetensors or several files
// with an index, and the tokenizer's files where the run has any. Written aside and renamed: complete or absent.
// Refuses a family that transformers does not have, a value that f16 cannot hold, and to replace a folder in which
// there is anything that an export does not write.
Exported export_huggingface(const std::filesystem::path& run, const std::filesystem::path& folder,
                            const ExportOptions& options,
                            const models::Families& families = models::builtin_families());

// The step whose checkpoint is exported: the given one, or the newest. Refuses one that is not there.
std::int64_t exported_step(const std::filesystem::path& run, std::optional<std::int64_t> given, const LogSink& log);

// Files of a Hugging Face folder that belong to its tokenizer and to generating with it. Gives whether tokenizer.json
// is among them. A run made from a folder keeps them, with the special tokens of config.json where the folder has no
// generation_config.json.
bool is_tokenizer_file(std::string_view name);
bool copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
bool keep_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& run);

}  // namespace trireme::train
