// What kernels and collectives take.
#include <gtest/gtest.h>

#include "trireme/comm/measure.h"
#include "trireme/ops/all.h"
#include "trireme/simulator/collective_time.h"
#include "trireme/simulator/kernel.h"

namespace trireme::simulator {
namespace {

cluster::Cluster eight() {
  cluster::Cluster c;
  c.node.devices = 8;
  c.device.flops = {{"f32", 1e12}, {"bf16", 1e13}};
  c.device.memory_bandwidth = 1e11;
  c.inside = {.bandwidth = 100e9, .collective_bandwidth = 80e9, .latency = 1e-6, .start = 5e-6};
  c.network = {.bandwidth = 10e9, .latency = 4e-6, .start = 7e-6, .tree_latency = 6e-6};
  c.software["flash"] = {};
  return c;
}

double seconds(const Duration& d) { return d.latency + d.busy; }

TEST(CollectiveTime, IsThatOfTheRingWithinANode) {
  const cluster::Cluster c = eight();
  const double s = 800e6;
  const Duration all = collective_time(c, comm::Collective::all_reduce, s, {8, 1}, comm::Algorithm::automatic);
  EXPECT_DOUBLE_EQ(all.latency, 5e-6 + 14 * 1e-6);
  EXPECT_DOUBLE_EQ(all.busy, 2 * s * 7 / 8 / 80e9);
  EXPECT_EQ(all.resource, Resource::inside);
  for (const auto half : {comm::Collective::reduce_scatter, comm::Collective::all_gather}) {
    const Duration d = collective_time(c, half, s, {8, 1}, comm::Algorithm::automatic);
    EXPECT_DOUBLE_EQ(d.latency, 5e-6 + 7 * 1e-6);
    EXPECT_DOUBLE_EQ(d.busy, s * 7 / 8 / 80e9);
  }
  EXPECT_EQ(seconds(collective_time(c, comm::Collective::all_reduce, s, {1, 1}, comm::Algorithm::automatic)), 0);
}

TEST(CollectiveTime, BetweenNodesIsByTheLinksOfTheRanksThere) {
  cluster::Cluster c = eight();
  const double s = 800e6;
  const auto busy = [&](const Spread& spread) {
    return collective_time(c, comm::Collective::all_reduce, s, spread, comm::Algorithm::automatic).busy;
  };
  EXPECT_DOUBLE_EQ(busy({4, 4}), 2 * s * 3 / 4 / 10e9);     // a rank of each node
  EXPECT_DOUBLE_EQ(busy({32, 4}), 2 * s * 31 / 32 / 80e9);  // eight links: as much as within a node
  // Of a link that ranks share they have all while others leave it alone.
  c.network.sharing = 2;
  EXPECT_DOUBLE_EQ(busy({4, 4}), 2 * s * 3 / 4 / 10e9);
  EXPECT_DOUBLE_EQ(busy({8, 4, 1}), 2 * s * 7 / 8 / 20e9);  // two of each node, on links of their own
  EXPECT_DOUBLE_EQ(busy({8, 4, 2}), 2 * s * 7 / 8 / 10e9);  // on one link
  // Few bytes among many nodes: a tree.
  const Duration small = collective_time(c, comm::Collective::all_reduce, 8, {64, 64}, comm::Algorithm::automatic);
  EXPECT_DOUBLE_EQ(small.latency, 7e-6 + 2 * 6 * 6e-6);
}

TEST(CollectiveTime, OfThreadsIsByTheLawOfTheAlgorithmThatIsChosen) {
  cluster::Cluster c = eight();
  c.transport = "emulated";
  for (const int ranks : {2, 3, 4, 8}) {
    // As comm/tuning.h: recursive up to 32 KiB, ring above.
    const comm::Law few = comm::law_of(comm::TransportKind::emulated, comm::Algorithm::recursive, 4096, 1, ranks);
    EXPECT_DOUBLE_EQ(
        seconds(collective_time(c, comm::Collective::all_reduce, 4096, {ranks, 1}, comm::Algorithm::automatic)),
        5e-6 + static_cast<double>(few.steps) * 1e-6 + static_cast<double>(few.sent) / 100e9);
    const comm::Law ring = comm::law_of(comm::TransportKind::emulated, comm::Algorithm::ring, 1 << 20, 1, ranks);
    EXPECT_DOUBLE_EQ(
        seconds(collective_time(c, comm::Collective::all_reduce, 1 << 20, {ranks, 1}, comm::Algorithm::automatic)),
        5e-6 + static_cast<double>(ring.steps) * 1e-6 + static_cast<double>(ring.sent) / 100e9);
    const comm::Law tree = comm::law_of(comm::TransportKind::emulated, comm::Algorithm::tree, 1 << 20, 1, ranks);
    EXPECT_DOUBLE_EQ(
        seconds(collective_time(c, comm::Collective::all_reduce, 1 << 20, {ranks, 1}, comm::Algorithm::tree)),
        5e-6 + static_cast<double>(tree.steps) * 1e-6 + static_cast<double>(tree.sent) / 100e9);
  }
}

TEST(CollectiveTime, OfThreadsIsAsMeasured) {
  cluster::Cluster c = eight();
  c.transport = "threads";
  c.inside.measured = {{"all_reduce", 2, 1024, 1e-5}, {"all_reduce", 2, 4096, 4e-5}, {"message", 2, 1024, 3e-6}};
  const auto at = [&](double bytes) {
    return seconds(collective_time(c, comm::Collective::all_reduce, bytes, {2, 1}, comm::Algorithm::automatic));
  };
  EXPECT_DOUBLE_EQ(at(1024), 1e-5);
  EXPECT_DOUBLE_EQ(at(2048), 2e-5);
  EXPECT_DOUBLE_EQ(at(8192), 8e-5);
  EXPECT_DOUBLE_EQ(at(16), 1e-5);
  EXPECT_DOUBLE_EQ(seconds(message_time(c, 1024, {2, 1})), 3e-6);
}

TEST(MessageTime, IsLatencyAndBytesOverTheLinkBetweenTheTwo) {
  const cluster::Cluster c = eight();
  EXPECT_DOUBLE_EQ(seconds(message_time(c, 1e6, {2, 1})), 1e-6 + 1e-5);
  EXPECT_DOUBLE_EQ(seconds(message_time(c, 1e6, {2, 2})), 4e-6 + 1e-4);
}

TEST(Spread, IsOfRanksSoFarApart) {
  cluster::Cluster c = eight();
  c.network.sharing = 4;
  const auto expect = [&](int ranks, int stride, int nodes, double per_link, double together) {
    const Spread s = spread_of(c, ranks, stride);
    EXPECT_EQ(s.ranks, ranks);
    EXPECT_EQ(s.nodes, nodes) << ranks << " " << stride;
    EXPECT_EQ(s.per_link, per_link) << ranks << " " << stride;
    const Duration d = collective_time(c, comm::Collective::all_reduce, 1e9, s, comm::Algorithm::automatic);
    EXPECT_DOUBLE_EQ(seconds_together(c, d), d.latency + together * d.busy) << ranks << " " << stride;
  };
  expect(4, 1, 1, 4, 1);
  expect(16, 1, 2, 4, 1);  // all ranks of a link are in it
  expect(8, 2, 2, 2, 2);   // every other: two groups for each link
  expect(4, 8, 4, 1, 4);
}

class KernelTime : public ::testing::Test {
 protected:
  Kernel kernel(const char* op, const std::vector<TensorType>& inputs, const ir::Attributes& given = {}) {
    program::Instruction i;
    i.op = &registry_.at(op);
    for (const ir::AttributeSpec& spec : i.op->attributes) i.attributes.set(spec.name, spec.fallback);
    for (const auto& [key, value] : given) i.attributes.set(key, value);
    for (const TensorType& type : inputs) i.inputs.push_back({0, type});
    for (const TensorType& type : i.op->infer(inputs, i.attributes)) i.outputs.push_back({0, type});
    return kernel_of(i);
  }
  double seconds(const Kernel& k, int threads = 1) const { return kernel_seconds(k, device, {}, threads); }

  ir::Registry registry_ = ops::builtin();
  cluster::Device device = eight().device;
};

TEST_F(KernelTime, IsThatOfOperationsOrBytesAndTheLaunch) {
  device.launch = 1e-6;
  const Kernel product =
      kernel("matmul", {{DType::bf16, {512, 256}}, {DType::bf16, {128, 256}}, TensorType::none(), TensorType::none()},
             {{"trans_b", true}});
  EXPECT_EQ(product.name, "matmul+tb");
  EXPECT_EQ(product.sizes, (std::vector<double>{512, 128, 256}));
  const double bytes = 2.0 * (512 * 256 + 128 * 256 + 512 * 128);
  EXPECT_DOUBLE_EQ(seconds(product), 1e-6 + bytes / 1e11);
  device.memory_bandwidth = 1e15;
  EXPECT_DOUBLE_EQ(seconds(product), 1e-6 + 2.0 * 512 * 128 * 256 / 1e13);
  device.kind = "cpu";
  EXPECT_DOUBLE_EQ(seconds(product, 2), 1e-6 + 512.0 * 128 * 256 / 1e13);
}

TEST_F(KernelTime, OfAProductIsOfWholeTilesAndWaves) {
  device.memory_bandwidth = 1e18;
  device.units = 4;
  device.tiles = {{128, 128, 1}, {64, 64, 0.5}};
  const auto at = [&](std::int64_t m, std::int64_t n) {
    return seconds(
        kernel("matmul", {{DType::bf16, {m, 64}}, {DType::bf16, {64, n}}, TensorType::none(), TensorType::none()}));
  };
  const double wave = 4.0 * 128 * 128 * 2 * 64 / 1e13;
  EXPECT_DOUBLE_EQ(at(256, 256), wave);
  EXPECT_DOUBLE_EQ(at(257, 256), 2 * wave);  // six tiles on four units
  EXPECT_DOUBLE_EQ(at(64, 64), wave / 2);    // the small tile at half the speed
  device.depth = 64;
  EXPECT_DOUBLE_EQ(at(256, 256), 2 * wave);
}

TEST_F(KernelTime, IsAsMeasuredAndInterpolatedBetweenMeasurements) {
  const auto at = [&](std::int64_t n, int threads = 1) {
    return seconds(kernel("gelu", {{DType::f32, {n}}}), threads);
  };
  const double plain = at(1 << 16);
  const Kernel small = kernel("gelu", {{DType::f32, {1 << 12}}});
  const Kernel large = kernel("gelu", {{DType::f32, {1 << 20}}});
  device.measured = {{"gelu", "f32", 1, small.sizes, 3 * seconds(small)},
                     {"gelu", "f32", 1, large.sizes, 3 * seconds(large)}};
  EXPECT_DOUBLE_EQ(at(1 << 12), device.measured.front().seconds);
  EXPECT_NEAR(at(1 << 16), 3 * plain, 1e-12);
  EXPECT_DOUBLE_EQ(at(1 << 16, 2), plain);  // not measured with two threads
}

TEST_F(KernelTime, IsLongerInOlderSoftware) {
  const Kernel gelu = kernel("gelu", {{DType::f32, {1 << 20}}});
  const Kernel product =
      kernel("matmul", {{DType::f32, {64, 64}}, {DType::f32, {64, 64}}, TensorType::none(), TensorType::none()});
  const cluster::Software old{.compute = 1.5, .elementwise = 2};
  EXPECT_DOUBLE_EQ(kernel_seconds(gelu, device, old, 1), 3 * seconds(gelu));
  EXPECT_DOUBLE_EQ(kernel_seconds(product, device, old, 1), 1.5 * seconds(product));
}

TEST_F(KernelTime, OfAttentionThatWritesItsScoresCountsTheirBytes) {
  const TensorType none = TensorType::none();
  const Kernel k = kernel("attention", {{DType::bf16, {2, 256, 3, 4, 64}}, none, none, none});
  EXPECT_DOUBLE_EQ(k.score_bytes, 2.0 * 2 * 4 * 256 * 256);
  EXPECT_NEAR(k.hidden, 2 * 256.0 / 257, 1e-9);  // causal
  const cluster::Software scores{.attention = "scores", .forward_passes = 5};
  const double more = kernel_seconds(k, device, scores, 1) - 5 * k.score_bytes / device.memory_bandwidth;
  EXPECT_NEAR(more,
              k.cost.flops * k.hidden / 1e13 + (k.cost.bytes_read + k.cost.bytes_written) / device.memory_bandwidth,
              1e-12);
}

}  // namespace
}  // namespace trireme::simulator
