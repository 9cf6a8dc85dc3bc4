#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/io/gguf_blocks.h"
#include "trireme/train/convert.h"

namespace trireme::train {

// Between run folders and GGUF files, which llama.cpp and its kin run.

struct GgufExportOptions {
  // Of matrices. Vectors and positions stay f32. With q4_0 and q4_k the embedding and the output layer have q8_0; rows
  // that are no whole blocks fall back: q4_k to q4_0, q4_0 and q8_0 to f16.
  std::optional<io::GgmlType> type = {};  // absent: f16
  std::optional<std::int64_t> step = {};  // absent: the newest checkpoint
  bool overwrite = false;
  LogSink log = {};
};
struct GgufExported {
  std::int64_t step = 0;
  io::GgmlType type = io::GgmlType::f16;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of the file
  // What matrices, positions apart, have in fact, the type that was asked for first.
  struct Share {
    io::GgmlType type;
    std::uint64_t bytes = 0;
    std::vector<std::string> names;  // of tensors in the file
    std::string why;                 // it is not the type that was asked for
  };
  std::vector<Share> matrices;
  bool tokenizer = false;
};
GgufExported export_gguf(const std::filesystem::path& run, const std::filesystem::path& file,
                         const GgufExportOptions& options,
                         const models::Families& families = models::builtin_families());

// Makes a run folder of a file's weights, in f32, and its tokenizer where this version knows its kind. `overrides` are
// settings of the run.
struct GgufImported {
  Config config;
  Imported counts;
};
GgufImported import_gguf(const std::filesystem::path& file, const std::filesystem::path& run,
                         std::span<const std::string> overrides, const ImportOptions& options,
                         const models::Families& families = models::builtin_families());

// The name of a GGUF file, rather than of a folder.
bool is_gguf(const std::filesystem::path& path);

}  // namespace trireme::train
