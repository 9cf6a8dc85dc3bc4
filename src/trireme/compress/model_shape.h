#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/rng.h"
#include "trireme/train/config.h"

namespace trireme::compress {

// What a search may choose of a model. Models of images have no heads and no feed-forward block: both are 0.
struct ModelShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t ffn = 0;

  friend auto operator<=>(const ModelShape&, const ModelShape&) = default;
};

// "6×192, 6 heads, ffn 512", or "3×24" for models of images.
std::string text_of(const ModelShape& shape);

// The shapes near that of a configuration, each as large as a budget allows. Of text, layers, heads and their size are
// drawn and the feed-forward block takes what the budget leaves; of images, layers are drawn and the width takes it.
class ShapeSpace {
 public:
  // The model's shape must be resolved. `layers`: the depths that the family has; empty: any.
  ShapeSpace(const train::Config& base, bool images, std::vector<std::int64_t> layers = {});

  ModelShape base() const { return base_; }
  train::Config with(const ModelShape& shape) const;

  // The cost of a shape; nothing where no model has it.
  using Cost = std::function<std::optional<double>(const ModelShape&)>;
  // Nothing where what was drawn exceeds `budget`, or where most of it would stay unused.
  std::optional<ModelShape> draw(SplitMix& random, const Cost& cost, double budget) const;
  // A shape that differs in one or two choices.
  std::optional<ModelShape> vary(const ModelShape& from, SplitMix& random, const Cost& cost, double budget) const;

 private:
  struct Range {
    std::int64_t low, high, step;
  };
  // The largest value of what takes the rest, so that the cost is within `budget`.
  std::optional<ModelShape> filled(ModelShape shape, const Cost& cost, double budget) const;
  Range rest(const ModelShape& shape) const;
  std::int64_t some_layers(SplitMix& random) const;

  const train::Config config_;
  bool images_;
  std::vector<std::int64_t> depths_;
  ModelShape base_;
  std::int64_t group_ = 1;  // heads for each key and value head
};

}  // namespace trireme::compress
