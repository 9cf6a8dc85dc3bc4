#include "trireme/planner/predict.h"

#include <gtest/gtest.h>

#include "trireme/ops/all.h"

namespace trireme::planner {
namespace {

// What a GPU launches together or replays pays for it once.
TEST(Predict, LaunchGroupsAndCaptureRegionsPayForTheirLaunches) {
  const ir::Registry registry = ops::builtin();
  const TensorType type{DType::f32, {16}};
  program::Program p;
  p.device = device::Kind::cuda;
  for (int i = 0; i < 10; ++i) {
    program::Instruction launch;
    launch.op = &registry.at("relu");
    launch.inputs = {{0, type}};
    launch.outputs = {{0, type}};
    p.instructions.push_back(launch);
  }
  const cost::Rates rates = cost::Rates::of(p.device);
  const double each = nominal_seconds(p);
  EXPECT_GT(each, 10 * rates.launch);
  p.launch_groups = {{2, 6}};
  EXPECT_NEAR(nominal_seconds(p), each - 3 * rates.launch, 1e-12);
  // The group is one kernel of the replay.
  p.capture_regions = {{0, 10, {}, {}}};
  EXPECT_NEAR(nominal_seconds(p), each - 10 * rates.launch + 7 * rates.graph_kernel + rates.graph_launch, 1e-12);
  p.launch_groups.clear();
  EXPECT_NEAR(nominal_seconds(p), each - 10 * (rates.launch - rates.graph_kernel) + rates.graph_launch, 1e-12);
}

}  // namespace
}  // namespace trireme::planner
