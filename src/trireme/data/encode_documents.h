#pragma once
#include <cstdint>
#include <functional>
#include <limits>
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
  std::uint64_t longest = 0;  // bytes of the longest part of a document that was encoded at once
};

struct EncodeOptions {
  std::string field = "text";  // of JSON lines
  int threads = 1;
  bool end_documents = true;  // the tokenizer's end-of-text token after each document, where it has one
  std::uint64_t memory = std::numeric_limits<std::uint64_t>::max();  // that encoding may take
  std::function<void(const EncodeProgress&)> progress;
};

// Encodes every document of `files` on all threads and hands the tokens over in order, many at a time. The same tokens
// for any number of threads. Takes `encoding_bytes` of memory at most, however long the files, their lines and
// documents are. Refuses, before it is encoded and naming file and line, what must be encoded at once and for which
// there is not enough memory.
EncodeProgress encode_documents(std::span<const TextFile> files, const Tokenizer& tokenizer,
                                const EncodeOptions& options,
                                const std::function<void(std::span<const std::int32_t>)>& take);

// What encoding takes of memory at most, the tokenizer's tables and the tokens that were handed over left out:
// `longest` is the longest part of a document that is encoded at once.
std::uint64_t encoding_bytes(int threads, std::uint64_t longest);

}  // namespace trireme::data
