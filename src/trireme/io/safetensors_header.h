#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/dtype.h"

namespace trireme::io {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

// A safetensors header as written: JSON of the right form, its claims not yet checked against each other or the file.
struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;  // in the data, which follows the header
    std::uint64_t end = 0;
  };
  std::vector<Tensor> tensors;  // by name, no name twice
  std::map<std::string, std::string> metadata;
};

SafetensorsHeader parse_safetensors_header(std::string_view json);

// "F32" ↔ DType::f32.
std::optional<DType> dtype_of_safetensors(std::string_view name);
std::string_view safetensors_name_of(DType dtype);

// The name as a JSON string. `for_message` also makes it safe to show: cut short, bad UTF-8 replaced.
std::string json_quoted(std::string_view name);
std::string for_message(std::string_view name);

}  // namespace trireme::io
