#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "equivalence/training.h"
#include "support/larger.h"

namespace trireme::testing {

// How closely two runs must agree.
struct Tolerance {
  double loss = 2e-5;     // of each loss
  double weights = 1e-3;  // of the distance that each tensor has moved from its start (see `compare`)
};

// Of 16 bits: every rank rounds its terms of a sum, by up to 2⁻⁹ of each in bf16.
inline constexpr Tolerance kLowPrecision = {1e-2, 0.05};

// Losses and weights of some steps.
struct Trajectory {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> start;
  std::map<std::string, std::vector<float>> weights;  // and running statistics
};
// After the steps every program has run: the largest end of what its kernels were handed is the planned peak.
Trajectory train_plan(Trained& trained, const train::Config& config, std::int64_t steps);

// Every weight starts a part of itself away, up or down by `draw`: how far the run then comes from the undisturbed one
// is how much it makes of rounding.
struct Moved {
  double by = 0;
  std::uint64_t draw = 0;
};
void move_weights(Trained& trained, const Moved& moved);
void move_weights(const std::string& name, std::vector<float>& values, const Moved& moved);

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
  double most() const { return larger(loss, weights); }
};
Difference compare(const Trajectory& reference, const Trajectory& planned, const Tolerance& tolerance);

// `parallel` trains like `plain` by that measure, in as many steps.
//
// With `planted` it also shows that the comparison can fail: the same plan with a parameter of every role that is never
// updated, and with one whose gradient is twice as large, must be too far away.
struct LikeByDistance {
  Tolerance tolerance = {};
  std::int64_t steps = 3;
  Setup setup = {};
  bool planted = false;
};
void expect_like_by_distance(const train::Config& plain, const train::Config& parallel, const LikeByDistance& how);

// What is wrong with a program on purpose, by name. Each is of the first parameter that a role updates.
struct PlantedFault {
  const char* name;
  std::function<void(train::Compiled&)> plant;
};
const std::vector<PlantedFault>& planted_faults();

}  // namespace trireme::testing
