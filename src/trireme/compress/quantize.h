#pragma once
#include <functional>

#include "trireme/compress/model.h"

namespace trireme::compress {

// One weight before and after, for reports.
struct QuantizedLayer {
  std::string name;
  std::string format;  // "int4:64"
  double bits = 0;     // of storage per element, scales included
  double error = 0;    // ‖W − Ŵ‖ / ‖W‖
  bool calibrated = false;
  // Of the layer's output on the calibration rows, rounded to nearest and as it is stored.
  double nearest_output_error = 0;
  double output_error = 0;
};

struct QuantizeOptions {
  // What errors are compensated on (compress/compensate.h): so many samples, spread evenly; null: each element is
  // rounded to its nearest code. Weights of 8 bits always are.
  const data::Dataset* calibration = nullptr;
  // What the ranges of memory.linear_inputs = "int8" are found on, as many samples of it.
  const data::Dataset* ranges = nullptr;
  std::int64_t rows = 128;
  std::function<void(std::size_t done, std::size_t all)> on_weight = {};
};

// Stores the weights of a model as its memory.weights says (set in `config` before), with the scales of what they are
// multiplied by as memory.linear_inputs says. The states of the f32 weights go.
std::vector<QuantizedLayer> quantize_weights(Model& model, const train::Registry& registry,
                                             const QuantizeOptions& options = {});

}  // namespace trireme::compress
