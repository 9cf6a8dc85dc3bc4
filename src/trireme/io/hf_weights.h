#pragma once
#include <trireme/model_config.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/hf_names.h"
#include "trireme/io/sharded_safetensors.h"
#include "trireme/ir/slice.h"

namespace trireme::io {

// The weights of a Hugging Face folder under our names, as f32 whatever they are stored as (F32, F16, BF16; exact).
//
//   const HfConfig config = read_hf_config(folder);
//   const HfWeights weights(folder, config.model);
//   weights.read("blocks.0.attn.qkv.weight", {3, heads, head_dim, width}, into);
//
// Opening maps the files and reads their headers. It refuses weights that are not exactly those of the model: a tensor
// that is missing, has another shape or type, or belongs to no part of it; output weights that differ from the
// embedding although the configuration ties them. Buffers that older versions saved are passed over. Reading converts
// straight into place and lets go of the file's pages as it goes, so that no second copy of the model is ever in
// memory.
class HfWeights {
 public:
  // `model` is that of the folder's config.json.
  HfWeights(const std::string& folder, const ModelConfig& model);
  HfWeights(const HfWeights&) = delete;
  HfWeights& operator=(const HfWeights&) = delete;

  const std::vector<HfTensor>& tensors() const { return tensors_; }
  // `shape` is the parameter's, which may have fewer positions than the folder's: the first ones are read.
  void read(const std::string& ours, const Shape& shape, std::span<float> out) const;
  // A block of it, or of its rows (Shape::as_rows) where the slice has fewer dimensions.
  void read(const std::string& ours, const Shape& shape, const ir::Slice& slice, std::span<float> out) const;

 private:
  void check(const ModelConfig& model);

  ShardedSafetensors files_;
  std::vector<HfTensor> tensors_;
  std::map<std::string, std::pair<const HfTensor*, ShardedSafetensors::Found>> by_name_;
};

}  // namespace trireme::io
