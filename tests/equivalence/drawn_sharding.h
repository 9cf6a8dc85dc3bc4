#pragma once
#include <map>
#include <string>

#include "equivalence/plan_choices.h"
#include "trireme/train/config.h"

namespace trireme::testing {

// The annotations of a random plan.
struct DrawnSharding {
  std::map<std::string, std::string> annotations;  // parallel.sharding
  bool over_dp = false;                            // some are of parameters, over dp
};
// `model` is resolved. Annotations over dp come to those that the family has for tp by itself.
DrawnSharding draw_sharding(const PlanChoices& choices, const models::ModelConfig& model);

}  // namespace trireme::testing
