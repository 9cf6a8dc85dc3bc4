#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

// Stands for the C++ standard library's headers, wherever this machine's compiler keeps them.
inline constexpr const char* kStandardHeaders = "/usr/include/c++";

// Where samples come from: section [data] of a configuration.
struct DataConfig {
  std::vector<std::string> text = {kStandardHeaders};
  std::vector<std::string> tokens;
  std::string token_type = "auto";  // auto | uint16 | uint32
  std::string tokenizer = "bytes";
  std::string images;
  std::string augment = "auto";    // auto | none | crop | flip | crop,flip
  std::string order = "shuffled";  // shuffled | sequential
  std::vector<std::string> eval;
  double holdout = 0.05;

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// What a model asks of its samples.
struct SampleShape {
  bool images = false;
  std::int64_t context = 0;  // tokens per sequence
  std::int64_t vocab = 0;    // 0: from the tokenizer
  // 0: as the image files have it
  std::int64_t image = 0;  // height and width
  std::int64_t channels = 0;
  std::int64_t classes = 0;
};

}  // namespace trireme::data
