#include <cmath>

#include "trireme/core/error.h"
#include "trireme/models/layers.h"
#include "trireme/models/model.h"

namespace trireme::models {
namespace {

using ir::Builder;
using ir::Value;

// `layers` blocks of 3×3 convolution, batch norm, ReLU and 2×2 max pooling, each twice as wide as the one before; then
// the mean over the image and one linear layer.
Value build_convnet(const Builder& b, const Batch& in, const ModelConfig& c) {
  Value x = in.images;
  for (int i = 0; i < c.layers; ++i) {
    const Builder k = b.scope("blocks", i);
    x = relu(batch_norm(k.scope("bn"), conv(k.scope("conv"), x, c.width << i), 0.1, c.norm_eps));
    const std::vector<std::int64_t> two = {2, 2};
    x = ir::apply1("max_pool2d", {k.here(x)},
                   {{"kernel", two}, {"stride", two}, {"padding", std::vector<std::int64_t>{0, 0}}});
  }
  const Value pooled = ir::apply1("global_avg_pool", {b.scope("pool").here(x)});
  const Value logits = linear(b.scope("head"), pooled, {c.classes},
                              {.bias = true, .deviation = std::sqrt(1.0 / static_cast<double>(pooled.shape().back()))});
  return cross_entropy(b.scope("head"), logits, in.labels);
}

void resolve_convnet(ModelConfig& c, const OptionNames& names) {
  const auto most = static_cast<std::int64_t>(std::log2(c.image));
  if (c.layers > most)
    refuse("{} = {}: each layer halves the image, and {}×{} can be halved at most {} times; the nearest is {}",
           names.layers, c.layers, c.image, c.image, most,
           most > 0 ? fmt::format("{} = {}", names.layers, most) : fmt::format("{} = 2", names.image));
}

}  // namespace

Model convnet() { return {"convnet", build_convnet, true, resolve_convnet}; }

}  // namespace trireme::models
