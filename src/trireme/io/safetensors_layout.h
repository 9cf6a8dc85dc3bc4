#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/shape.h"

namespace trireme::io {

// How a file with these tensors is laid out: the same in whatever order they are given. Wider types come first, then
// names in order, which together with a padded header aligns every tensor to its element.
struct SafetensorsLayout {
  std::string head;                // what precedes the data: the header's length and the header
  std::vector<std::size_t> order;  // the tensors as they follow it, without gaps: indices into those given
  std::uint64_t bytes = 0;         // of the whole file
};
SafetensorsLayout lay_out_safetensors(std::span<const std::pair<std::string, TensorType>> tensors,
                                      const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme::io
