#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/models/model_config.h"

namespace trireme::models {

// What a model reads. Sequence models use tokens and targets, image models images and labels; without targets or labels
// a model gives its logits instead of its loss.
struct Batch {
  ir::Value tokens;   // i32 [rows, context]
  ir::Value targets;  // i32 [rows, context]
  ir::Value images;   // f32 [rows, height, width, channels]
  ir::Value labels;   // i32 [rows]
};

// A model is one function from a batch to its loss.
struct Model {
  std::string name;
  std::function<ir::Value(const ir::Builder&, const Batch&, const ModelConfig&)> build;
  bool images = false;
  // Refuses a configuration the family cannot have, naming the key; fills in the family's own choices.
  std::function<void(ModelConfig&)> resolve;
};

// The families that ship with Trireme; families.h lists them.
Model gpt2();
Model llama();
Model mlp();
Model convnet();
Model resnet();

// Refuses heads that do not divide what they share out; for families that attend.
void check_heads(const ModelConfig& config);

// A residual network by its parts; `resnet()` gives the published ones.
struct ResNetShape {
  bool bottleneck = false;
  std::vector<std::int64_t> blocks;  // per stage
  std::vector<std::int64_t> widths;  // per stage
};
ir::Value build_resnet(const ir::Builder& b, const Batch& in, const ResNetShape& shape, std::int64_t classes);

}  // namespace trireme::models
