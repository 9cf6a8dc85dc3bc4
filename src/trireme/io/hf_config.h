#pragma once
#include <trireme/model_config.h>

#include <string>
#include <vector>

#include "trireme/core/dtype.h"
#include "trireme/core/option_names.h"

namespace trireme::io {

// What the config.json of a Hugging Face folder says, in our terms: every size filled in, nothing left to a family's
// rule. `context` is the largest position it knows.
struct HfConfig {
  ModelConfig model;
  // What a person should know: settings of theirs that have no place here and change nothing that is computed.
  std::vector<std::string> notes;
};

// Reads FOLDER/config.json of the GPT-2 and Llama families, in the spelling of any transformers version: absent keys
// have the defaults transformers gives them. Refuses, by key, whatever would make transformers compute something that
// we do not: another activation, biases, another rotary scaling, quantised weights … Dropout is a choice of training,
// not part of what the weights mean: the run decides, and a note says what the folder had. `names`: what
// notes call our options.
HfConfig read_hf_config(const std::string& folder, const OptionNames& names = {});

// config.json for weights of this model, loadable by transformers 4.43 and newer. `dtype` is that of the weights.
// `generation` is the text of a generation_config.json whose special tokens config.json repeats; empty: there are none.
std::string hf_config_json(const ModelConfig& model, DType dtype, const std::string& generation);

// The special tokens of FOLDER/config.json as the text of a generation_config.json; for folders that have none.
std::string generation_config_of(const std::string& folder);

}  // namespace trireme::io
