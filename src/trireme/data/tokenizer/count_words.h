#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/train_bpe.h"

namespace trireme::data {

struct WordCount {
  std::string word;
  std::uint64_t count = 0;
};

// How often each word occurs in the documents of `files`, cut by the options' pattern; sorted by word.
std::vector<WordCount> count_words(std::span<const TextFile> files, const TrainBpeOptions& options);

}  // namespace trireme::data
