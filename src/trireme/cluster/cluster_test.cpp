#include "trireme/cluster/cluster.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::cluster {
namespace {

constexpr const char* kSmall = R"(name = "two"
transport = "threads"
[device]
name = "CPU"
kind = "cpu"
memory = "8GiB"
memory_bandwidth = "20GB/s"
launch = "1us"
flops = { f32 = 80e9 }
measured = [ { kernel = "matmul+tb", dtype = "f32", threads = 1, sizes = [64, 64, 64], seconds = 1.25e-5 } ]
[node]
devices = 4
cores = 2
[inside]
bandwidth = "5GB/s"
latency = "20us"
)";

std::string message_of(const std::string& text) {
  try {
    parse_cluster(text, "c.toml");
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Cluster, IsReadWithItsUnits) {
  const Cluster c = parse_cluster(kSmall, "c.toml");
  EXPECT_EQ(c.device.memory, 8.0 * (1U << 30));
  EXPECT_EQ(c.device.memory_bandwidth, 20e9);
  EXPECT_EQ(c.device.launch, 1e-6);
  EXPECT_EQ(c.device.flops.at("f32"), 80e9);
  EXPECT_EQ(c.device.measured.front().sizes, (std::vector<double>{64, 64, 64}));
  EXPECT_DOUBLE_EQ(c.inside.latency, 20e-6);
  EXPECT_EQ(c.network, c.inside);  // one node
  EXPECT_EQ(c.node_of(3), 0);
  EXPECT_EQ(c.node_of(4), 1);
}

TEST(Cluster, PrintsWhatReadsBackToTheSame) {
  Cluster c = parse_cluster(kSmall, "c.toml");
  c.devices["slow one"] = c.device;
  c.ranks = {{.first = 1, .last = 2, .device = "slow one", .speed = 0.5}};
  c.inside.measured = {{"all_reduce", 2, 4096, 1.5e-5}};
  EXPECT_EQ(parse_cluster(to_toml(c), "again"), c) << to_toml(c);
  for (const Builtin& builtin : builtin_clusters()) {
    const Cluster one = load_cluster(std::string(builtin.name));
    EXPECT_EQ(one.name, builtin.name);
    EXPECT_EQ(one.node.devices, 8);
    EXPECT_FALSE(one.source.empty());
    EXPECT_EQ(parse_cluster(to_toml(one), "again"), one) << to_toml(one);
  }
}

TEST(Cluster, RefusesWithTheKeyAndTheNearestRightOne) {
  EXPECT_EQ(message_of(with(kSmall, "memory_bandwidth", "memory_bandwith")),
            "c.toml:3: device.memory_bandwidth is missing; is device.memory_bandwith meant for it?");
  EXPECT_EQ(message_of(with(kSmall, "latency = \"20us\"", "latency = \"20us\"\nlatncy = \"1us\"")),
            "c.toml:17: unknown key inside.latncy; did you mean inside.latency?");
  EXPECT_EQ(message_of(with(kSmall, "\"20GB/s\"", "\"20GB\"")),
            "c.toml:7: device.memory_bandwidth = \"20GB\": expected a bandwidth such as \"300GB/s\"");
  EXPECT_EQ(message_of(with(kSmall, "\"threads\"", "\"thread\"")),
            "c.toml:2: transport = \"thread\": expected nccl, threads, emulated, mpi; did you mean \"threads\"?");
  EXPECT_EQ(message_of(with(kSmall, "devices = 4", "devices = 0")),
            "c.toml:12: node.devices = 0: expected a whole number of at least 1");
  EXPECT_EQ(message_of(with(kSmall, "devices = 4", "devices = 4611686018427387904")),
            "c.toml:12: node.devices = 4611686018427387904: expected a whole number of at most 1048576");
  EXPECT_EQ(message_of(with(kSmall, "[node]", "tiles = [ { rows = 64, columns = 64, efficiency = 0 } ]\n[node]")),
            "c.toml:11: device.tiles.efficiency = 0: expected a share above 0 and at most 1");
  EXPECT_EQ(message_of(std::string(kSmall) + "[software.flash]\ncompute = 0\n"),
            "c.toml:18: software.flash.compute = 0: expected a number above 0");
  EXPECT_EQ(message_of(with(kSmall, "80e9", "-80e9")),
            "c.toml:9: device.flops = -80000000000: expected numbers above 0");
  EXPECT_EQ(message_of(with(kSmall, "cores = 2\n", "")),
            "c.toml: node.cores is missing: the ranks of a CPU share its cores");
  EXPECT_EQ(message_of(std::string("generation = \"flsh\"\n") + kSmall),
            "c.toml: generation = \"flsh\" has no table software.flsh; there is flash");
  EXPECT_EQ(message_of(std::string(kSmall) + "[[ranks]]\nfirst = 3\nlast = 1\n"),
            "c.toml: ranks: last = 1 is before first = 3");
  EXPECT_EQ(message_of("name = "), "c.toml:1: Error while parsing key-value pair: encountered end-of-file");
}

TEST(Cluster, ThatIsNotThereIsRefusedWithTheNearestName) {
  try {
    load_cluster("h10");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(),
              "there is no cluster \"h10\" and no such file; did you mean \"h100\"?; the built-in ones are a100, h100, "
              "h200, b200");
  }
}

TEST(Cluster, RanksOfACpuShareTheMemoryOfTheirNode) {
  Cluster c = parse_cluster(kSmall, "c.toml");
  const double memory = c.device.memory;
  EXPECT_EQ(c.memory_of(0, 1), memory);
  EXPECT_EQ(c.memory_of(1, 2), memory / 2);
  EXPECT_EQ(c.memory_of(7, 8), memory / 4);  // two nodes of four
  c.device.kind = "gpu";
  EXPECT_EQ(c.memory_of(7, 8), memory);
}

TEST(Cluster, RanksMayDiffer) {
  Cluster c = parse_cluster(kSmall, "c.toml");
  c.devices["slow"] = c.device;
  c.devices["slow"].name = "slow CPU";
  c.ranks = {{.first = 2, .last = 3, .device = "slow"}};
  EXPECT_EQ(c.device_of(1).name, "CPU");
  EXPECT_EQ(c.device_of(2).name, "slow CPU");
  EXPECT_EQ(c.override_of(4), nullptr);
}

}  // namespace
}  // namespace trireme::cluster
