#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/io/safetensors.h"

namespace trireme::io {

// The weights of a Hugging Face folder: model.safetensors, or the files that model.safetensors.index.json names.
// Opening reads headers alone. The index must tell the truth: every tensor it lists lies in the file it says, no file
// holds a tensor that it does not list or that another file has too, and every file lies in the folder itself.
class ShardedSafetensors {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsFile::Tensor* tensor = nullptr;
    explicit operator bool() const { return tensor != nullptr; }
  };

  explicit ShardedSafetensors(const std::string& folder);
  ShardedSafetensors(const ShardedSafetensors&) = delete;
  ShardedSafetensors& operator=(const ShardedSafetensors&) = delete;

  // Where the tensors are listed: model.safetensors or the index, for messages.
  const std::string& path() const { return path_; }
  Found find(const std::string& name) const;
  const std::map<std::string, Found>& tensors() const { return tensors_; }

 private:
  void open_index(const std::string& folder);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Found> tensors_;
};

}  // namespace trireme::io
