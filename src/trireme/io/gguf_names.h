#pragma once
#include <trireme/model_config.h>

#include <string>
#include <vector>

#include "trireme/core/option_names.h"
#include "trireme/core/shape.h"
#include "trireme/io/gguf.h"

namespace trireme::io {

// One parameter, as both sides have it: the same numbers in the same order, except where `heads` is not 0. There each
// head's rows are interleaved, 0, d/2, 1, d/2 + 1, …: llama.cpp rotates neighbouring features, we rotate halves.
struct GgufParameter {
  std::string ours;    // "blocks.0.attn.q.weight"
  Shape shape;         // [heads, head_dim, width]
  std::string theirs;  // "blk.0.attn_q.weight"
  Shape stored;        // [heads · head_dim, width]
  std::int64_t heads = 0;
  bool table = false;  // the embedding's or the output layer's
};
// Every parameter of a model. Refuses, by option, what the format's readers would compute in another way.
std::vector<GgufParameter> gguf_parameters(const ModelConfig& model, const OptionNames& names = {});

// Rows of one of ours as theirs, and back.
std::vector<float> to_gguf(const GgufParameter& parameter, std::vector<float> values);
std::vector<float> from_gguf(const GgufParameter& parameter, std::vector<float> values);

// What a Llama's scaled rotary embedding divides its frequencies by, one number for each: the tensor kRopeFactors, by
// which readers scale. Empty where the frequencies are those of rope_theta alone, or all divided by one number.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
std::vector<float> rope_factors(const ModelConfig& model);

// The keys that describe a model, and the model that a file describes.
GgufMetadata gguf_metadata(const ModelConfig& model);
ModelConfig gguf_model(const GgufFile& file);

}  // namespace trireme::io
