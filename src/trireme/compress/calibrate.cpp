#include "trireme/compress/calibrate.h"

#include <algorithm>
#include <cstring>

#include "trireme/passes/observe_inputs.h"
#include "trireme/passes/observe_ranges.h"
#include "trireme/train/evaluate.h"

namespace trireme::compress {

namespace {

// What a pass has observed in states of this suffix, by what is before it, after `rows` samples in f32.
std::map<std::string, std::vector<float>> observed(const Model& model, const train::Registry& registry,
                                                   const train::CompileOptions& options, const std::string& suffix,
                                                   const data::Dataset& data, std::int64_t rows) {
  Model exact = model;
  exact.config.train.precision = "f32";
  exact.config.runtime.device = "cpu";  // codes are the same whatever else is there
  Running running(exact, registry, options);
  std::map<std::string, std::vector<float>> found;
  for (const ir::State& state : running.compiled().roles.front().module.states) {
    if (!state.name.ends_with(suffix)) continue;
    found[state.name.substr(0, state.name.size() - suffix.size())].resize(
        static_cast<std::size_t>(state.type.elements()));
    running.session().write_state(state.name, 0, std::vector<std::byte>(state.type.bytes()));
  }
  // Whole batches: rows that only fill one up would be counted too.
  const std::int64_t batch = running.compiled().micro_rows;
  train::evaluate(running.session(), data, std::max(batch, std::min(rows, data.samples()) / batch * batch));
  for (auto& [name, values] : found)
    running.session().read_state(name + suffix, 0, std::as_writable_bytes(std::span(values)));
  return found;
}

}  // namespace

std::map<std::string, std::vector<float>> input_moments(const Model& model, const train::Registry& registry,
                                                        const passes::QuantizeWeights::Options& weights,
                                                        const data::Dataset& data, std::int64_t rows) {
  return observed(model, registry, {.purpose = train::Purpose::evaluate, .observe = weights},
                  passes::ObserveInputs::state_of(""), data, rows);
}

std::map<std::string, float> input_ranges(const Model& model, const train::Registry& registry,
                                          const passes::QuantizeWeights::Options& weights, const data::Dataset& data,
                                          std::int64_t rows) {
  std::map<std::string, float> ranges;
  for (const auto& [name, values] :
       observed(model, registry, {.purpose = train::Purpose::evaluate, .observe_ranges = weights},
                passes::ObserveRanges::state_of(""), data, rows))
    ranges[name] = values.front();
  return ranges;
}

}  // namespace trireme::compress
