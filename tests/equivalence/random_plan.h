#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "equivalence/plan_choices.h"
#include "equivalence/trajectory.h"
#include "trireme/core/error.h"

namespace trireme::testing {

// A plan drawn from everything that a run can ask for. Equal seeds give equal plans.
struct RandomPlan {
  std::uint32_t seed = 0;
  PlanChoices choices;
  train::Config config;
  // What it is compared with: the plain model on one rank where the mathematics is the same, otherwise the plainest
  // plan that rounds, compresses or delays likewise. Of asynchronous pipelines PipedreamReference is the reference.
  train::Config reference;
  bool asynchronous_pipeline = false;
  std::int64_t steps = 3;
  Tolerance tolerance;
  std::string text;  // in one line
  // Why it has no limit though one was drawn: without one it was not compiled either.
  std::optional<Error> refusal;
};

// `max_ranks` is without servers.
RandomPlan draw_plan(std::uint32_t seed, int max_ranks = 8);

// What it is to be like. `moved` is not for asynchronous pipelines.
Trajectory train_reference(const RandomPlan& plan, const Moved& moved = {});

}  // namespace trireme::testing
