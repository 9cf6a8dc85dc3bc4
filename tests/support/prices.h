#pragma once
#include <trireme/trireme.h>

#include <cstdint>
#include <vector>

// Data of inputs by names of their own, and models of them: prices that follow from features and a kind.
namespace trireme::testing {

inline constexpr std::int64_t kFeatures = 4, kKinds = 5;

// Of sample i. Weights differ from row to row, so that a row which meets another's weight is found.
inline float feature(std::int64_t i, std::int64_t j) {
  return static_cast<float>((7 * i + 3 * j + i * j) % 11) / 5 - 1;
}
inline std::int32_t kind(std::int64_t i) { return static_cast<std::int32_t>(i * i % kKinds); }
inline float weight(std::int64_t i) { return 0.25F * static_cast<float>(1 + i % 7); }
inline float price(std::int64_t i) { return static_cast<float>(i % 9) / 3 - static_cast<float>(i % 4); }
inline float scale(std::int64_t step, std::int64_t j) {
  return 1 + 0.125F * static_cast<float>(j) / static_cast<float>(1 + step);
}

inline std::vector<Input> declared() {
  return {{.name = "features", .shape = {kFeatures}},
          {.name = "kind", .type = Input::Type::i32},
          {.name = "weights_per_row"},
          {.name = "price", .target = true},
          {.name = "scale", .shape = {kFeatures}, .whole = true}};
}

inline void write_sample(std::int64_t i, Sample& to) {
  for (std::int64_t j = 0; j < kFeatures; ++j) to.floats("features")[static_cast<std::size_t>(j)] = feature(i, j);
  to.integers("kind")[0] = kind(i);
  to.floats("weights_per_row")[0] = weight(i);
  to.floats("price")[0] = price(i);
}

inline void write_scale(std::int64_t step, Sample& to) {
  for (std::int64_t j = 0; j < kFeatures; ++j) to.floats("scale")[static_cast<std::size_t>(j)] = scale(step, j);
}

inline Data rows(std::int64_t samples = 40, double holdout = 0) {
  return own_inputs(samples, declared(), write_sample,
                    {.order = "sequential", .holdout = holdout, .whole = write_scale});
}

// The mean over rows of weight · (predicted price - price)².
inline Value weighted_loss(Builder& b, const Batch& in, const Value& x) {
  Value predicted = reshape(x, {x.shape()[0]});
  if (in.predicting) return predicted;
  const Value error = predicted - in["price"];
  return batch_mean(b, in["weights_per_row"] * error * error);
}

inline Value linear_model(Builder& b, const Batch& in) {
  const Value x = linear(b.scope("out"), in["features"] * in["scale"], 1, {.deviation = 0.3});
  return weighted_loss(b, in, x + embedding(b.scope("kinds"), in["kind"], kKinds, 1, 0.3));
}

// Of several layers, for meshes.
inline Value deep_model(Builder& b, const Batch& in) {
  Value x = linear(b.scope("in"), in["features"] * in["scale"], 16, {.deviation = 0.3});
  x = x + embedding(b.scope("kinds"), in["kind"], kKinds, 16, 0.3);
  for (int i = 0; i < 4; ++i) {
    const Builder k = b.scope("blocks", i);
    x = x + linear(k.scope("down"), gelu(linear(k.scope("up"), x, 32, {.deviation = 0.2})), 16, {.deviation = 0.2});
  }
  return weighted_loss(b, in, linear(b.scope("out"), x, 1, {.deviation = 0.3}));
}

inline TrainOptions plain_sgd(std::int64_t steps) {
  return {.steps = steps,
          .batch = 8,
          .optimizer = "sgd",
          .lr = 0.05,
          .warmup = 0,
          .schedule = "constant",
          .momentum = 0,
          .weight_decay = 0,
          .clip = 0};
}

}  // namespace trireme::testing
