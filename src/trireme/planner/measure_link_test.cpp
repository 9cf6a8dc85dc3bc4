#include "trireme/planner/measure_link.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "trireme/comm/threads/world.h"

namespace trireme::planner {
namespace {

// Ranks by collective.
std::map<std::string, std::set<std::int64_t>> measured(const cluster::Link& link) {
  std::map<std::string, std::set<std::int64_t>> ranks;
  for (const cluster::MeasuredCollective& m : link.measured) {
    EXPECT_GT(m.seconds, 0);
    ranks[m.collective].insert(m.ranks);
  }
  return ranks;
}

cluster::Cluster measured_on(const std::vector<int>& machine) {
  cluster::Cluster c;
  c.node = {.devices = 64, .cores = 2};
  c.inside.measured = {{"all_reduce", 8, 1, 1}};  // not of these links
  comm::threads::run(static_cast<int>(machine.size()), {.link = "1GB/s,200us", .timeout = 600},
                     [&](comm::Communicator& world) {
                       EXPECT_EQ(machines(world), std::vector<int>(machine.size(), 0));
                       cluster::Cluster none;
                       measure_links(world.rank() == 0 ? c : none, world, machine);
                     });
  EXPECT_EQ(c.transport, "mpi");
  return c;
}

TEST(MeasureLinks, OfOneMachineAreInside) {
  const cluster::Cluster c = measured_on({0, 0});
  EXPECT_EQ(measured(c.inside),
            (std::map<std::string, std::set<std::int64_t>>{
                {"all_gather", {2}}, {"all_reduce", {2}}, {"message", {2}}, {"reduce_scatter", {2}}}));
  EXPECT_EQ(c.network, c.inside);
  EXPECT_EQ(c.node.devices, 64);
  // As the link that is emulated.
  EXPECT_GT(c.inside.latency, 150e-6);
  EXPECT_LT(c.inside.latency, 0.05);
  EXPECT_LT(c.inside.bandwidth, 1.5e9);
}

TEST(MeasureLinks, OfSeveralMachinesAreOfNodes) {
  const cluster::Cluster c = measured_on({0, 0, 2, 2});
  EXPECT_EQ(measured(c.inside)["message"], std::set<std::int64_t>{2});
  EXPECT_EQ(measured(c.inside)["all_reduce"], std::set<std::int64_t>{2});
  EXPECT_EQ(measured(c.network)["message"], std::set<std::int64_t>{2});
  EXPECT_EQ(measured(c.network)["all_reduce"], (std::set<std::int64_t>{2, 4}));
  EXPECT_GT(c.network.latency, 150e-6);
  EXPECT_EQ(c.node.devices, 2);
  EXPECT_EQ(c.network.sharing, 2);
}

}  // namespace
}  // namespace trireme::planner
