#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/core/mapped_file.h"
#include "trireme/core/shape.h"
#include "trireme/io/gguf_blocks.h"

namespace trireme::io {

// GGUF, version 3: the files that llama.cpp and its kin run. Metadata by key, then tensors at aligned offsets.
using GgufValue = std::variant<bool, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t, float, double,
                               std::string, std::vector<std::string>, std::vector<std::int64_t>, std::vector<double>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  Shape shape;  // as ours: the last dimension is contiguous
  GgmlType type = GgmlType::f32;
};

// Writes a file that appears whole or not at all. `values(i)` gives the elements of tensor i, one tensor at a time.
// Lists of numbers are written as i32 and f32.
void write_gguf(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                const std::function<std::vector<float>(std::size_t)>& values);

// A file, read as it is asked for. Refuses, naming the file, what is not GGUF, is cut short or has a name twice.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;
  // Refuses a tensor that is not there or has another shape.
  std::vector<float> read(const std::string& name, const Shape& shape) const;

  bool has(const std::string& key) const { return metadata_.contains(key); }
  // Each refuses a key that is absent or has another kind of value.
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }

 private:
  template <class T>
  const T& value(const std::string& key, const char* kind) const;

  std::string path_;
  MappedFile file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t> by_name_;  // tensors
  std::vector<std::uint64_t> offsets_;          // of tensors, in the file
};

}  // namespace trireme::io
