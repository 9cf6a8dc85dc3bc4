#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {

struct EncodeProgress {
  std::uint64_t bytes = 0;        // of the files, so far
  std::uint64_t total_bytes = 0;  // of all of them
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

struct EncodeOptions {
  std::string field = "text";  // of JSON lines
  int threads = 1;
  bool end_documents = true;  // the tokenizer's end-of-text token after each document, where it has one
  std::function<void(const EncodeProgress&)> progress;
};

// Encodes every document of `files` on all threads and hands the tokens over in order, many at a time. The same tokens
// for any number of threads.
EncodeProgress encode_documents(std::span<const TextFile> files, const Tokenizer& tokenizer,
                                const EncodeOptions& options,
                                const std::function<void(std::span<const std::int32_t>)>& take);

}  // namespace trireme::data
