#include <cmath>

#include "trireme/core/error.h"
#include "trireme/models/layers.h"
#include "trireme/models/model.h"

namespace trireme::models {
namespace {

using ir::Builder;
using ir::Value;

Value conv_norm(const Builder& b, const std::string& conv_name, const std::string& norm_name, const Value& x,
                std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return batch_norm(b.scope(norm_name),
                    conv(b.scope(conv_name), x, out, {.kernel = kernel, .stride = stride, .padding = kernel / 2}));
}

// The stride is on the 3×3 convolution of a bottleneck, as in common practice, not on its first 1×1.
Value block(const Builder& b, const Value& x, bool bottleneck, std::int64_t width, std::int64_t stride) {
  const std::int64_t out = bottleneck ? 4 * width : width;
  Value y;
  if (bottleneck) {
    y = relu(conv_norm(b, "conv1", "bn1", x, width, 1, 1));
    y = relu(conv_norm(b, "conv2", "bn2", y, width, 3, stride));
    y = conv_norm(b, "conv3", "bn3", y, out, 1, 1);
  } else {
    y = relu(conv_norm(b, "conv1", "bn1", x, width, 3, stride));
    y = conv_norm(b, "conv2", "bn2", y, width, 3, 1);
  }
  const bool changes = stride != 1 || x.shape().back() != out;
  const Value skip = changes ? conv_norm(b.scope("down"), "conv", "bn", x, out, 1, stride) : x;
  return relu(add(b.here(y), skip));
}

struct Published {
  std::int64_t layers;
  bool bottleneck;
  std::vector<std::int64_t> blocks;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {18, false, {2, 2, 2, 2}}, {34, false, {3, 4, 6, 3}}, {50, true, {3, 4, 6, 3}}};
  return all;
}

const Published& find(std::int64_t layers, const OptionNames& names = {}) {
  for (const Published& p : published())
    if (p.layers == layers) return p;
  const Published* near = &published().front();
  for (const Published& p : published())
    if (std::abs(p.layers - layers) < std::abs(near->layers - layers)) near = &p;
  refuse("{} = {}: a resnet has 18, 34 or 50 layers; the nearest is {}", names.layers, layers, near->layers);
}

Value build_configured(const Builder& b, const Batch& in, const ModelConfig& c) {
  const Published& p = find(c.layers);
  return build_resnet(b, in, {p.bottleneck, p.blocks, {c.width, 2 * c.width, 4 * c.width, 8 * c.width}}, c.classes);
}

void resolve_resnet(ModelConfig& c, const OptionNames& names) { find(c.layers, names); }

}  // namespace

Value build_resnet(const Builder& b, const Batch& in, const ResNetShape& shape, std::int64_t classes) {
  Value x = relu(conv_norm(b.scope("stem"), "conv", "bn", in.images, shape.widths.front(), 7, 2));
  x = ir::apply1("max_pool2d", {b.scope("stem").here(x)},
                 {{"kernel", std::vector<std::int64_t>{3, 3}},
                  {"stride", std::vector<std::int64_t>{2, 2}},
                  {"padding", std::vector<std::int64_t>{1, 1}}});
  for (std::size_t s = 0; s < shape.blocks.size(); ++s)
    for (int i = 0; i < shape.blocks[s]; ++i)
      x = block(b.scope("stages", static_cast<int>(s)).scope(std::to_string(i)), x, shape.bottleneck, shape.widths[s],
                s > 0 && i == 0 ? 2 : 1);
  const Value pooled = ir::apply1("global_avg_pool", {b.scope("pool").here(x)});
  const Value logits = linear(b.scope("head"), pooled, {classes},
                              {.bias = true, .deviation = std::sqrt(1.0 / static_cast<double>(pooled.shape().back()))});
  return cross_entropy(b.scope("head"), logits, in.labels);
}

Model resnet() { return {"resnet", build_configured, true, resolve_resnet}; }

}  // namespace trireme::models
