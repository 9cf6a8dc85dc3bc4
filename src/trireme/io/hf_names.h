#pragma once
#include <trireme/model_config.h>

#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/option_names.h"
#include "trireme/core/shape.h"

namespace trireme::io {

// One parameter, as both sides have it. The same numbers in the same order, except where `transposed`: there theirs is
// the matrix [columns, rows] of ours.
struct HfTensor {
  std::string ours;    // "blocks.0.attn.qkv.weight"
  Shape shape;         // [3, heads, head_dim, width]
  std::string theirs;  // "transformer.h.0.attn.c_attn.weight"
  Shape stored;        // [width, 3 * width]
  bool transposed = false;
};

// Every parameter of a model, in an order that follows it from the tokens to the logits. Refuses a family that
// transformers does not have, and heads that it does not have; `names`: what messages call the options.
std::vector<HfTensor> hf_tensors(const ModelConfig& model, const OptionNames& names = {});

// What their names begin with when the model was saved with its head: "transformer.", "model.". Folders of the bare
// model leave it out.
std::string_view hf_prefix(const ModelConfig& model);

// Is this one of the constants that some versions of transformers saved among the weights? Without the prefix.
bool is_hf_buffer(const ModelConfig& model, std::string_view name);

// Their name of the output weights, which have no prefix.
std::string_view hf_head();

}  // namespace trireme::io
