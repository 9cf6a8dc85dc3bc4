#pragma once
#include <trireme/model_config.h>

#include <string_view>

#include "trireme/io/hf_settings.h"

namespace trireme::io {

// What the sizes of a model must keep to, by whichever format it is described: config.json and the metadata of GGUF
// files are read through these, each with keys of its own. All refuse by key.

// Sets kv_heads and head_dim, to what follows from the width and the heads where a key is absent. A format in which a
// family has no such key gives "".
struct HeadKeys {
  std::string_view width;
  std::string_view kv_heads = "";
  std::string_view head_dim = "";
};
void read_heads(const HfSettings& settings, const HeadKeys& keys, ModelConfig& model);

// More layers or parameters than any model has: before a loop or an allocation grows with them.
void check_size(const HfSettings& settings, std::string_view layers, std::string_view width, const ModelConfig& model);

}  // namespace trireme::io
