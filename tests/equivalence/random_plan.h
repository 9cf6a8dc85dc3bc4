#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "equivalence/training.h"

namespace trireme::testing {

// How closely two runs must agree.
struct Tolerance {
  double loss = 2e-5;     // of each loss
  double weights = 1e-3;  // of the distance that each tensor has moved from its start (see `compare`)
};

// A plan drawn from everything that a run can ask for. Equal seeds give equal plans.
struct RandomPlan {
  std::uint32_t seed = 0;
  // What makes it special: every run of as many seeds as there are techniques has each of them.
  std::string technique;
  train::Config config;
  // What it is compared with: the plain model on one rank where the mathematics is the same, otherwise the plainest
  // plan that rounds, compresses or delays likewise. Of asynchronous pipelines PipedreamReference is the reference.
  train::Config reference;
  bool asynchronous_pipeline = false;
  std::int64_t steps = 3;
  Tolerance tolerance;
  std::string text;  // in one line
};

// `max_ranks` is without servers.
RandomPlan draw_plan(std::uint32_t seed, int max_ranks = 8);
const std::vector<std::string>& plan_techniques();

// Losses and weights of some steps.
struct Trajectory {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> start;
  std::map<std::string, std::vector<float>> weights;  // and running statistics
};
// After the steps every program has run: the measured peak is the planned one.
Trajectory train_plan(Trained& trained, const train::Config& config, std::int64_t steps);
Trajectory train_reference(const RandomPlan& plan);

// How far apart two runs are, each in units of what is allowed: above 1 is too far. The weights of a tensor w may
// differ by
//
//   tolerance × (‖w − w₀‖ + 0.05 √n m) + ε ‖w‖
//
// where m is the root mean square by which an element of the model has moved: tensors whose exact gradient is zero (the
// biases of keys, say) move by rounding errors alone. ε is f32's: an update is rounded to the weight's own digits. So a
// weight that was not updated, or by a gradient of the wrong scale, is too far whatever its size.
struct Difference {
  double loss = 0;
  double weights = 0;
  std::string worst;  // the tensor that differs most
  double most() const { return loss > weights ? loss : weights; }
};
Difference compare(const Trajectory& reference, const Trajectory& planned, const Tolerance& tolerance);

}  // namespace trireme::testing
