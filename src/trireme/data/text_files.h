#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/token_stream.h"

namespace trireme::data {

struct TextFile {
  std::string path;
  std::string name;  // below the folder that was listed: the same on every machine
  std::uint64_t bytes = 0;
};

// The folders of the C++ standard library's headers, asked of the compiler; kCxxHeaders where there is none.
std::vector<std::string> standard_header_folders();

// The files that `paths` (or globs) name: listed files as they are; of folders every text file below them, in order of
// their path,
// without hidden ones and links to folders (a file with a zero byte near its beginning is no text). Empty files and
// repetitions are left out. kCxxHeaders stands for the folders above. `key` is what messages call that which named
// them.
std::vector<TextFile> find_text_files(std::span<const std::string> paths, std::string_view key);

// Cuts `files` in two, whole files on both sides, so that `held_out` has about `share` of the bytes and at least
// `least`. Which files depends on their names alone, so losses of runs with different seeds compare.
struct Split {
  std::vector<TextFile> train;
  std::vector<TextFile> held_out;
};
Split split_files(const std::vector<TextFile>& files, double share, std::uint64_t least);

// The files' bytes end to end, one token per byte. Large files are mapped and must not be shortened meanwhile.
TokenStream read_text(std::span<const TextFile> files);

// Nats per token of `text` for a model that knows only how often each token occurs in `known` (add-one smoothing).
// Streams over 256 Mi tokens are counted in evenly spaced blocks.
double unigram_cross_entropy(const TokenStream& known, const TokenStream& text, std::int64_t vocab = 256);

}  // namespace trireme::data
