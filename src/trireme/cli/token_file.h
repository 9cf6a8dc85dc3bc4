#pragma once
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "trireme/core/rng.h"

namespace trireme::cli {

// Tokens to train on, for the time of a benchmark.
class TokenFile {
 public:
  TokenFile()
      : path_(std::filesystem::temp_directory_path() / fmt::format("trireme-plans-{}-{}.bin", ::getpid(), next_++)) {
    std::ofstream out(path_, std::ios::binary);
    SplitMix random(1);
    for (int i = 0; i < 200'000; ++i) {
      const auto token = static_cast<std::uint16_t>(random.unit() * 256);
      out.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  ~TokenFile() {
    std::error_code unknown;
    std::filesystem::remove(path_, unknown);
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  inline static std::atomic<int> next_ = 0;  // each has a file of its own
  std::filesystem::path path_;
};

}  // namespace trireme::cli
