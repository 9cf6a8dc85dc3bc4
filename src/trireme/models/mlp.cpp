#include <cmath>

#include "trireme/models/layers.h"
#include "trireme/models/model.h"

namespace trireme::models {
namespace {

using ir::Builder;
using ir::Value;

// Image pixels through `layers` hidden layers of `width` ReLU units to class scores.
Value build_mlp(const Builder& b, const Batch& in, const ModelConfig& c) {
  const Shape& image = in.images.shape();
  Value x = reshape(b.here(in.images), {image[0], image.elements(1, image.rank())});
  for (int i = 0; i < c.layers; ++i) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(x.shape().back()));
    x = relu(linear(b.scope("layers", i), x, {c.width}, {.bias = true, .deviation = deviation}));
  }
  const Value logits = linear(b.scope("head"), x, {c.classes},
                              {.bias = true, .deviation = std::sqrt(1.0 / static_cast<double>(c.width))});
  return cross_entropy(b.scope("head"), logits, in.labels);
}

}  // namespace

Model mlp() {
  return {"mlp", build_mlp, true, [](ModelConfig&, const OptionNames&) {}};
}

}  // namespace trireme::models
