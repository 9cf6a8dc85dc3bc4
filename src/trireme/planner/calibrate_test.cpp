#include "trireme/planner/calibrate.h"

#include <gtest/gtest.h>

#include "trireme/ops/all.h"
#include "trireme/simulator/kernel.h"

namespace trireme::planner {
namespace {

program::Instruction gelu(const ir::Registry& registry, std::int64_t elements) {
  program::Instruction i;
  i.op = &registry.at("gelu");
  for (const ir::AttributeSpec& spec : i.op->attributes) i.attributes.set(spec.name, spec.fallback);
  i.inputs = i.outputs = {{0, {DType::f32, {elements}}}};
  return i;
}

TEST(Calibrate, DescribesThisMachineInFiguresThatReadBack) {
  std::vector<std::string> said;
  CalibrateOptions options;
  options.products = false;
  options.ranks = {2};
  options.on_progress = [&](const std::string& what, std::size_t, std::size_t) { said.push_back(what); };
  const cluster::Cluster c = calibrate(options);
  EXPECT_EQ(c.device.kind, "cpu");
  EXPECT_GT(c.device.flops.at("f32"), 1e8);
  EXPECT_GT(c.device.memory_bandwidth, 1e8);
  EXPECT_GE(c.node.cores, 1);
  EXPECT_GE(c.node.busy_slowdown, 1);
  EXPECT_FALSE(said.empty());
  for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "message"}) {
    double small = 0, large = 0;
    for (const cluster::MeasuredCollective& m : c.inside.measured) {
      if (m.collective != collective) continue;
      EXPECT_EQ(m.ranks, 2);
      EXPECT_GT(m.seconds, 0);
      if (small == 0) small = m.seconds;
      large = m.seconds;
    }
    EXPECT_GT(large, small) << collective;  // 16 MiB and 256 bytes
  }
  EXPECT_EQ(cluster::parse_cluster(cluster::to_toml(c), "again"), c);
}

TEST(Calibrate, MeasuresEveryKernelOnce) {
  const ir::Registry registry = ops::builtin();
  program::Program p;
  p.threads = 1;
  p.instructions = {gelu(registry, 1024), gelu(registry, 1024), gelu(registry, 65536)};
  cluster::Cluster c;
  c.device.kind = "cpu";
  c.device.flops["f32"] = 1e9;
  c.device.memory_bandwidth = 1e9;
  CalibrateOptions options;
  options.programs = {&p, &p};
  measure_kernels(c, options);
  ASSERT_EQ(c.device.measured.size(), 2U);
  EXPECT_LT(c.device.measured[0].seconds, c.device.measured[1].seconds);
  // The simulator takes what was measured.
  EXPECT_EQ(simulator::kernel_seconds(simulator::kernel_of(p.instructions[2]), c.device, {}, 1),
            c.device.measured[1].seconds);
  measure_kernels(c, options);
  EXPECT_EQ(c.device.measured.size(), 2U);
}

}  // namespace
}  // namespace trireme::planner
