#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/core/option_names.h"
#include "trireme/ir/builder.h"
#include "trireme/models/model_config.h"

namespace trireme::models {

// An input that a model reads by a name of its own.
struct Input {
  std::string name;
  TensorType row;       // of one row; of all of it where it is whole
  bool whole = false;   // not by rows but the same for all of them
  bool target = false;  // not there where the model is asked for its predictions
};

// What a model reads. Sequence models use tokens and targets, image models images and labels, others inputs by names of
// their own; without targets or labels a model gives its logits instead of its loss.
struct Batch {
  ir::Value tokens;   // i32 [rows, context]
  ir::Value targets;  // i32 [rows, context]
  ir::Value images;   // f32 [rows, height, width, channels]
  ir::Value labels;   // i32 [rows]
  // Of a model that names them itself; a target is absent where it predicts.
  std::map<std::string, ir::Value> inputs = {};
  bool predicting = false;
};

// A model is one function from a batch to its loss.
struct Model {
  std::string name;
  std::function<ir::Value(const ir::Builder&, const Batch&, const ModelConfig&)> build;
  bool images = false;
  // Refuses what the family cannot have, naming the option; fills in the family's own choices.
  std::function<void(ModelConfig&, const OptionNames&)> resolve;
  // Those that it reads by names of their own, in the place of tokens or images.
  std::vector<Input> inputs = {};
};

// The families that ship with Trireme; families.h lists them.
Model gpt2();
Model llama();
Model mlp();
Model convnet();
Model resnet();

// Refuses heads that do not divide what they share out, and documents that end with no token; for families that attend.
void check_heads(const ModelConfig& config, const OptionNames& names);

// A residual network by its parts; `resnet()` gives the published ones.
struct ResNetShape {
  bool bottleneck = false;
  std::vector<std::int64_t> blocks;  // per stage
  std::vector<std::int64_t> widths;  // per stage
};
ir::Value build_resnet(const ir::Builder& b, const Batch& in, const ResNetShape& shape, std::int64_t classes);

}  // namespace trireme::models
