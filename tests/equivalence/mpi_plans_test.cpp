// Random plans whose ranks are processes train as those whose ranks are threads, to the bit. Every rank is a process
// that runs this test: tests/mpi/launch 4 equivalence_test --gtest_filter=MpiPlans.* with TRIREME_TEST_TRANSPORT=mpi.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "equivalence/random_plan.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/train/extra_ranks.h"

namespace trireme::testing {
namespace {

// Of the weights that a rank stores.
std::int64_t digest(train::Rank& rank) {
  std::string all;
  for (const ir::State& state : rank.role().module.states) {
    if (!state.trained) continue;
    std::vector<std::byte> bytes(state.type.bytes());
    rank.read_state(state.name, 0, bytes);
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return static_cast<std::int64_t>(site_of(all));
}

TEST(MpiPlans, ProcessesTrainAsThreadsDo) {
  const char* transport = std::getenv("TRIREME_TEST_TRANSPORT");
  if (transport == nullptr || std::string(transport) != "mpi") GTEST_SKIP() << "ranks are not processes here";
  const char* asked = std::getenv("TRIREME_PLANS");
  const int wanted = asked == nullptr ? 8 : std::atoi(asked);
  comm::mpi::Session session;
  comm::Communicator world = session.communicator();
  int plans = 0;
  for (std::uint32_t seed = 1; plans < wanted && seed < 1000; ++seed) {
    RandomPlan plan = draw_plan(seed, world.size());
    if (train::ranks_of(plan.config) != world.size()) continue;
    plan.config.parallel.allreduce = "ring";  // the same sums in the same order
    SCOPED_TRACE(plan.text);
    std::optional<Trained> processes;
    try {
      train::check(plan.config);
      processes.emplace(plan.config, testing::Setup{.world = &world});
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), Error::Kind::request) << e.what();
      continue;  // on every rank
    }
    processes->train(plan.steps);
    std::vector<std::int64_t> digests(static_cast<std::size_t>(world.size()));
    digests[static_cast<std::size_t>(world.rank())] = digest(processes->session().rank(0));
    world.all_reduce(std::span(digests), comm::Reduce::sum);
    ++plans;
    if (world.rank() > 0) continue;
    fmt::print("{}\n", plan.text);
    Trained threads(plan.config);
    threads.train(plan.steps);
    EXPECT_EQ(threads.losses(), processes->losses());
    for (std::size_t r = 0; r < digests.size(); ++r)
      EXPECT_EQ(digest(threads.session().rank(r)), digests[r]) << "weights of rank " << r;
  }
  EXPECT_EQ(plans, wanted);
}

}  // namespace
}  // namespace trireme::testing
