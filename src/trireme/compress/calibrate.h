#pragma once
#include "trireme/compress/model.h"
#include "trireme/passes/quantize_weights.h"

namespace trireme::compress {

// The second moments Σ xᵀx [k,k] of what each linear layer reads over `rows` samples of `data`, spread evenly, by the
// weight's name.
std::map<std::string, std::vector<float>> input_moments(const Model& model, const train::Registry& registry,
                                                        const passes::QuantizeWeights::Options& weights,
                                                        const data::Dataset& data, std::int64_t rows);

// How large the inputs of each linear layer become over `rows` samples, max|x| by the weight's name; the output layer
// is left out.
std::map<std::string, float> input_ranges(const Model& model, const train::Registry& registry,
                                          const passes::QuantizeWeights::Options& weights, const data::Dataset& data,
                                          std::int64_t rows);

}  // namespace trireme::compress
