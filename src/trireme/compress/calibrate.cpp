#include "trireme/compress/calibrate.h"

#include <algorithm>
#include <cstring>

#include "trireme/passes/observe_inputs.h"
#include "trireme/train/evaluate.h"

namespace trireme::compress {

std::map<std::string, std::vector<float>> input_moments(const Model& model, const train::Registry& registry,
                                                        const passes::QuantizeWeights::Options& weights,
                                                        const data::Dataset& data, std::int64_t rows) {
  Model exact = model;
  exact.config.train.precision = "f32";
  Running running(exact, registry, {.purpose = train::Purpose::evaluate, .observe = weights});
  const std::string suffix = passes::ObserveInputs::state_of("");
  std::map<std::string, std::vector<float>> moments;
  for (const ir::State& state : running.compiled().roles.front().module.states) {
    if (!state.name.ends_with(suffix)) continue;
    moments[state.name.substr(0, state.name.size() - suffix.size())].resize(
        static_cast<std::size_t>(state.type.elements()));
    running.session().write_state(state.name, 0, std::vector<std::byte>(state.type.bytes()));
  }
  // Whole batches: rows that only fill one up would be counted too.
  const std::int64_t batch = running.compiled().micro_rows;
  train::evaluate(running.session(), data, std::max(batch, std::min(rows, data.samples()) / batch * batch));
  for (auto& [name, values] : moments)
    running.session().read_state(name + suffix, 0, std::as_writable_bytes(std::span(values)));
  return moments;
}

}  // namespace trireme::compress
