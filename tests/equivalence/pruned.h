#pragma once
#include <map>
#include <string>
#include <vector>

#include "equivalence/training.h"

namespace trireme::testing {

using States = std::map<std::string, std::vector<float>>;

// A small model that is pruned from its second step on.
inline train::Config pruned(const std::string& model, const std::string& method, const std::string& pattern,
                            const std::string& schedule, std::int64_t steps) {
  train::Config config = small_model(model);
  config.train.steps = steps;
  config.prune.method = method;
  config.prune.pattern = pattern;
  config.prune.schedule = schedule;
  config.prune.begin = 1;
  config.prune.end = steps - 1;
  config.prune.every = 2;
  config.prune.rounds = 2;
  config.train.warmup = 0;
  train::check(config);
  return config;
}

// The weights that have a mask.
inline std::vector<std::string> masked(const States& state) {
  std::vector<std::string> names;
  for (const auto& [name, values] : state)
    if (name.ends_with("/mask")) names.push_back(name.substr(0, name.size() - 5));
  return names;
}

}  // namespace trireme::testing
