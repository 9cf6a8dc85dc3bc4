#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/text_files.h"

namespace trireme::data {

struct TrainBpeOptions {
  std::int64_t vocab = 32000;  // at most so many tokens, special ones and the 256 bytes included
  std::uint64_t min_frequency = 2;
  std::vector<std::string> specials = {"<|endoftext|>"};  // these get the first ids
  std::string pattern = "gpt2";                           // one of known_patterns.h
  std::string field = "text";                             // of JSON lines
  int threads = 1;
  // How far it is: "counting words" or "merging", done of total.
  std::function<void(const char* phase, std::uint64_t done, std::uint64_t total)> progress;
};

struct TrainedBpe {
  std::string json;  // a tokenizer.json
  std::int64_t vocab = 0;
  std::int64_t merges = 0;
  std::uint64_t words = 0;  // different ones
};

// Learns a byte-level vocabulary: words are counted, then the most frequent pair of neighbours becomes a token, again
// and again; of equally frequent pairs the one with the lower ids. The same result for any number of threads, and the
// same as Hugging Face's BpeTrainer gives for the same documents and settings.
TrainedBpe train_bpe(std::span<const TextFile> files, const TrainBpeOptions& options);

}  // namespace trireme::data
