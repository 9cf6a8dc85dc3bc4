#pragma once
#include <trireme/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Stands for the C++ standard library's headers, wherever this machine's compiler keeps them: real text that needs no
// download.
inline constexpr const char* kCxxHeaders = "/usr/include/c++";

// Where samples come from, and their shape. Made by one of the functions below; opened, and refused if missing or too
// short, when a Trainer is made.
struct Data {
  enum class Kind { text, tokens, images };
  Kind kind = Kind::text;
  std::vector<std::string> files = {kCxxHeaders};
  std::int64_t context = 128;  // tokens per sequence
  std::int64_t vocab = 0;
  std::string token_type = "auto";
  std::int64_t image = 32;
  std::int64_t channels = 3;
  std::int64_t classes = 10;
  std::string order = "shuffled";
  std::vector<std::string> eval = {};
  double holdout = 0.05;
};

struct TextOptions {
  std::int64_t context = 128;
  std::string order = "shuffled";      // shuffled | sequential
  std::vector<std::string> eval = {};  // held-out files; else
  double holdout = 0.05;               // this share is held out: whole files, or the end of a single one
};
// Text files, or folders of them, one token per byte: a vocabulary of 256.
TRIREME_API Data text_files(std::vector<std::string> files, TextOptions options = {});

struct TokenOptions {
  std::int64_t vocab = 0;  // must be given
  std::int64_t context = 128;
  std::string token_type = "auto";  // auto | uint16 | uint32, of raw files
  std::string order = "shuffled";
  std::vector<std::string> eval = {};
  double holdout = 0.05;  // the end of the tokens
};
// Token files or globs: raw little-endian integers, llm.c's or Megatron's.
TRIREME_API Data token_files(std::vector<std::string> files, TokenOptions options);

struct ImageOptions {
  std::int64_t size = 32;  // height and width
  std::int64_t channels = 3;
  std::int64_t classes = 10;
  std::string order = "shuffled";
  double holdout = 0.05;
};
// Images that need no files and can be learned: a pattern for each class, moved, scaled and under noise.
TRIREME_API Data synthetic_images(ImageOptions options = {});

}  // namespace trireme
