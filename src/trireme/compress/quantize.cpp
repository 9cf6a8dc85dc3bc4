#include "trireme/compress/quantize.h"

#include <cmath>
#include <utility>

#include "trireme/compress/calibrate.h"
#include "trireme/compress/compensate.h"
#include "trireme/core/error.h"
#include "trireme/passes/round_inputs.h"
#include "trireme/train/graphs.h"
#include "trireme/train/quantization.h"

namespace trireme::compress {
namespace {

double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += off * off;
    whole += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return whole > 0 ? std::sqrt(difference / whole) : 0;
}

// A weight's codes and scales, and what they stand for.
struct Stored {
  std::vector<std::byte> codes, scales;
  std::vector<float> values;

  explicit Stored(const passes::QuantizedWeight& weight)
      : codes(weight.format.codes(weight.n, weight.k).bytes()),
        scales(weight.format.scales(weight.n, weight.k).bytes()),
        values(static_cast<std::size_t>(weight.n * weight.k)) {}
  float* scale() { return reinterpret_cast<float*>(scales.data()); }
  void expand(const passes::QuantizedWeight& w) {
    ops::dequantize_rows(codes.data(), scale(), w.n, w.k, w.format, values.data());
  }
};

Stored nearest(const passes::QuantizedWeight& weight, std::span<const float> values) {
  Stored stored(weight);
  ops::quantize_rows(values.data(), weight.n, weight.k, weight.format, stored.codes.data(), stored.scale());
  stored.expand(weight);
  return stored;
}

}  // namespace

std::vector<QuantizedLayer> quantize_weights(Model& model, const train::Registry& registry,
                                             const QuantizeOptions& options) {
  const auto format = train::stored_weights(model.config);
  if (!format) fail("memory.weights = \"full\": nothing to quantize");
  train::Config config = model.config;
  config.train.batch = config.train.micro_batch = 1;
  const compiler::Graphs graphs = train::build_graphs(config, registry, {.purpose = train::Purpose::evaluate});
  const std::vector<passes::QuantizedWeight> weights = passes::quantized_weights(graphs.module, *format);
  std::map<std::string, std::vector<float>> moments;
  if (options.calibration != nullptr)
    moments = input_moments(model, registry, *format, *options.calibration, options.rows);
  std::map<std::string, float> ranges;
  if (model.config.memory.linear_inputs == train::LinearInputs::int8) {
    if (options.ranges == nullptr) fail("memory.linear_inputs = \"int8\": no rows to find ranges on");
    ranges = input_ranges(model, registry, *format, *options.ranges, options.rows);
  }
  ThreadPool pool(train::compute_threads(config));
  std::vector<QuantizedLayer> layers;
  for (const passes::QuantizedWeight& weight : weights) {
    if (options.on_weight) options.on_weight(layers.size(), weights.size());
    const std::span<const float> values = std::as_const(model).floats(weight.name);
    QuantizedLayer layer{
        .name = weight.name, .format = weight.format.str(), .bits = weight.format.bits_per_element(weight.k)};
    Stored stored = nearest(weight, values);
    const auto own = moments.find(weight.name);
    if (own != moments.end() && weight.format.bits < 8) {
      layer.calibrated = true;
      layer.nearest_output_error = output_error(values, stored.values, weight.n, weight.k, own->second, pool);
      quantize_compensated(values, weight.n, weight.k, weight.format, own->second, pool, stored.codes.data(),
                           stored.scale());
      stored.expand(weight);
      layer.output_error = output_error(values, stored.values, weight.n, weight.k, own->second, pool);
    }
    layer.error = relative_error(values, stored.values);
    layers.push_back(std::move(layer));
    model.states.erase(weight.name);
    model.states[weight.codes()] = std::move(stored.codes);
    model.states[weight.scale()] = std::move(stored.scales);
    if (const auto range = ranges.find(weight.name); range != ranges.end()) {
      if (!std::isfinite(range->second)) fail("the layer of '{}' reads what is not finite", weight.name);
      const float scale = range->second / 127.0F;
      const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
      model.states[passes::RoundInputs::state_of(weight.name)] = {bytes, bytes + sizeof(scale)};
    }
  }
  return layers;
}

}  // namespace trireme::compress
