#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/data_config.h"

namespace trireme::test {

// 0, 1, 2 … starting over at `modulus`.
template <class T = std::uint16_t>
std::vector<T> counting(std::size_t n, std::size_t modulus = 50000) {
  std::vector<T> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<T>(i % modulus);
  return tokens;
}

// One token file, nothing held out.
inline data::DataConfig tokens_config(const std::string& path) {
  data::DataConfig config;
  config.tokens = {path};
  config.holdout = 0;
  return config;
}

}  // namespace trireme::test
