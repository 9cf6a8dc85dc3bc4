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
// The same, for a file whose model it is. Refuses, by name, a tensor that is missing, has another shape or belongs to
// no part of the model.
std::vector<GgufParameter> gguf_parameters(const GgufFile& file, const ModelConfig& model);

// Rows of one of ours as theirs, and back.
std::vector<float> to_gguf(const GgufParameter& parameter, std::vector<float> values);
std::vector<float> from_gguf(const GgufParameter& parameter, std::vector<float> values);

// What a Llama's scaled rotary embedding divides its frequencies by, one number for each: the tensor kRopeFactors, by
// which readers scale. Empty where the frequencies are those of rope_theta alone, or all divided by one number.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
std::vector<float> rope_factors(const ModelConfig& model);

// The keys that describe a model.
GgufMetadata gguf_metadata(const ModelConfig& model);

// The model that a file describes, by the rules of config.json (hf_config.h): refuses, by key, values that are none and
// whatever would make other readers compute something that we do not. `notes` are for a person: keys that have no
// effect here.
struct GgufModel {
  ModelConfig model;
  std::vector<std::string> notes;
};
GgufModel gguf_model(const GgufFile& file);

}  // namespace trireme::io
