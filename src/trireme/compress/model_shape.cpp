#include "trireme/compress/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::compress {
namespace {

// A shape that leaves more of the budget unused is no fair rival.
constexpr double kLeastUse = 0.9;

std::int64_t pick(SplitMix& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(high - low + 1));
}

}  // namespace

std::string text_of(const ModelShape& shape) {
  std::string text = fmt::format("{}×{}", shape.layers, shape.width);
  if (shape.heads > 0) text += fmt::format(", {} head{}, ffn {}", shape.heads, shape.heads == 1 ? "" : "s", shape.ffn);
  return text;
}

ShapeSpace::ShapeSpace(const train::Config& base, bool images, std::vector<std::int64_t> layers)
    : config_(base), images_(images), depths_(std::move(layers)) {
  const models::ModelConfig& m = base.model;
  base_ = {m.layers, m.width, images ? 0 : m.heads, images ? 0 : m.ffn};
  if (!images && m.kv_heads > 0) group_ = std::max<std::int64_t>(1, m.heads / m.kv_heads);
  // None, or one of few, up to three times as deep.
  if (depths_.empty())
    for (std::int64_t n = 1; n <= std::max<std::int64_t>(3 * m.layers, 4); ++n) depths_.push_back(n);
}

train::Config ShapeSpace::with(const ModelShape& shape) const {
  train::Config config = config_;
  config.model.layers = shape.layers;
  config.model.width = shape.width;
  if (images_) return config;
  config.model.heads = shape.heads;
  config.model.head_dim = shape.width / shape.heads;
  config.model.ffn = shape.ffn;
  if (config.model.kv_heads > 0) config.model.kv_heads = shape.heads / group_;
  return config;
}

ShapeSpace::Range ShapeSpace::rest(const ModelShape& shape) const {
  if (images_) return {4, 8 * base_.width, 4};
  return {shape.width / 2, 16 * shape.width, 16};
}

std::optional<ModelShape> ShapeSpace::filled(ModelShape shape, const Cost& cost, double budget) const {
  const Range range = rest(shape);
  const auto at = [&](std::int64_t i) {
    ModelShape s = shape;
    (images_ ? s.width : s.ffn) = (range.low / range.step + i) * range.step;
    return s;
  };
  const auto within = [&](const ModelShape& s) {
    const std::optional<double> c = cost(s);
    return c && *c <= budget;
  };
  std::int64_t low = range.low < range.step ? 1 : 0;
  if (!within(at(low))) return std::nullopt;
  std::int64_t high = (range.high - range.low) / range.step;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (within(at(middle)))
      low = middle;
    else
      high = middle - 1;
  }
  const ModelShape found = at(low);
  if (*cost(found) < kLeastUse * budget) return std::nullopt;
  return found;
}

// As many between one and two as between four and eight: a layer more means less where there are many.
std::int64_t ShapeSpace::some_layers(SplitMix& random) const {
  const double low = std::log(static_cast<double>(depths_.front()) - 0.5);
  const double high = std::log(static_cast<double>(depths_.back()) + 0.5);
  const double drawn = std::exp(low + (high - low) * random.unit());
  return *std::min_element(depths_.begin(), depths_.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(static_cast<double>(a) - drawn) < std::abs(static_cast<double>(b) - drawn);
  });
}

std::optional<ModelShape> ShapeSpace::draw(SplitMix& random, const Cost& cost, double budget) const {
  ModelShape shape;
  shape.layers = some_layers(random);
  if (!images_) {
    // Heads half, as, or twice as large as the configuration's; a model between half and twice as wide.
    const std::int64_t head = base_.width / base_.heads;
    const std::int64_t size = std::array{std::max<std::int64_t>(8, head / 2 / 8 * 8), head, 2 * head}.at(
        static_cast<std::size_t>(pick(random, 0, 2)));
    const std::int64_t most = std::max<std::int64_t>(1, 2 * base_.width / (size * group_));
    const std::int64_t least = std::clamp<std::int64_t>(base_.width / 2 / (size * group_), 1, most);
    shape.heads = group_ * pick(random, least, most);
    shape.width = shape.heads * size;
  }
  return filled(shape, cost, budget);
}

std::optional<ModelShape> ShapeSpace::vary(const ModelShape& from, SplitMix& random, const Cost& cost,
                                           double budget) const {
  ModelShape shape = from;
  const auto place = std::find(depths_.begin(), depths_.end(), from.layers) - depths_.begin();
  const auto move_layers = [&] {
    const std::int64_t to =
        std::clamp<std::int64_t>(place + (random.next() % 2 == 0 ? -1 : 1), 0, std::ssize(depths_) - 1);
    shape.layers = depths_[static_cast<std::size_t>(to)];
  };
  if (images_) {
    move_layers();
    return filled(shape, cost, budget);
  }
  const std::uint64_t choice = random.next() % 3;
  if (choice != 1) move_layers();
  if (choice != 0) {
    const std::int64_t size = from.width / from.heads;
    shape.heads = std::max(group_, from.heads + (random.next() % 2 == 0 ? -group_ : group_));
    shape.width = shape.heads * size;
  }
  return filled(shape, cost, budget);
}

}  // namespace trireme::compress
