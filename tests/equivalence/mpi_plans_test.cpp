// Random plans whose ranks are processes train as those whose ranks are threads, to the bit. Every rank is a process
// that runs this test: tests/mpi/launch 4 equivalence_test --gtest_filter=MpiPlans.* with TRIREME_TEST_TRANSPORT=mpi.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
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

bool ranks_are_processes() {
  const char* transport = std::getenv("TRIREME_TEST_TRANSPORT");
  return transport != nullptr && std::string(transport) == "mpi";
}

// MPI is initialised once in a process.
comm::Communicator world_of_processes() {
  static comm::mpi::Session session;
  return session.communicator();
}

// Of images, as a process of a run has them.
data::Batch some_rows(const data::Batch& all, const std::vector<data::RowRange>& ranges) {
  data::Batch own;
  own.ranges = ranges;
  const auto each = std::ssize(all.images) / all.rows;
  for (const data::RowRange& range : ranges) {
    own.rows += range.count;
    const auto images = all.images.begin() + range.first * each;
    own.images.insert(own.images.end(), images, images + range.count * each);
    const auto labels = all.labels.begin() + range.first;
    own.labels.insert(own.labels.end(), labels, labels + range.count);
  }
  return own;
}

// Two stages of two replicas, three micro-batches.
train::Config on_four_ranks() {
  train::Config config = small_model("mlp");
  config.train.batch = 12;
  config.train.micro_batch = 4;
  return over_mesh(config, "dp=2,pp=2");
}

// No process has all rows, and not all of them have the one that is bad.
TEST(MpiPlans, ProcessesNameTheInputThatThreadsDo) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  comm::Communicator world = world_of_processes();
  if (world.size() != 4) GTEST_SKIP() << "four ranks are asked for";
  const train::Config config = on_four_ranks();
  Trained processes(config, testing::Setup{.world = &world});
  Trained threads(config);
  const std::vector<data::RowRange> rows = processes.session().rows(processes.compiled().micro_batches);
  for (const std::int64_t row : {0, 3, 11}) {
    data::Batch batch = batch_of(config, 0);
    const auto each = std::ssize(batch.images) / batch.rows;
    for (std::int64_t bad = row; bad < batch.rows; ++bad)
      batch.images[static_cast<std::size_t>(bad * each + 5)] = std::numeric_limits<float>::quiet_NaN();
    const auto culprit = processes.session().explain(some_rows(batch, rows), 0, 1e-3, 0);
    const auto expected = threads.session().explain(batch, 0, 1e-3, 0);
    ASSERT_TRUE(culprit && culprit->input && expected && expected->input);
    EXPECT_EQ(culprit->input->input, "images");
    EXPECT_EQ(culprit->input->row, row);
    EXPECT_EQ(culprit->input->element, 5);
    EXPECT_EQ(culprit->input->str(), expected->input->str());
  }
}

// The rank is that of the run, in every process.
TEST(MpiPlans, ProcessesNameTheRankThatThreadsDo) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  comm::Communicator world = world_of_processes();
  if (world.size() != 4) GTEST_SKIP() << "four ranks are asked for";
  const train::Config config = on_four_ranks();
  const auto culprit = [&](Trained& trained, const std::string& state) {
    const float inf = std::numeric_limits<float>::infinity();
    trained.session().write_state(state, 0, std::as_bytes(std::span(&inf, 1)));
    return trained.session().explain(batch_of(config, 0), 0, 1e-3, 0);
  };
  for (const char* state : {"layers.1.weight", "layers.0.weight"}) {
    Trained processes(config, testing::Setup{.world = &world});
    Trained threads(config);
    const auto named = culprit(processes, state);
    const auto expected = culprit(threads, state);
    ASSERT_TRUE(named && expected);
    EXPECT_EQ(named->tensor.tensor, expected->tensor.tensor);
    EXPECT_EQ(named->tensor.op, expected->tensor.op);
    EXPECT_EQ(named->tensor.micro, expected->tensor.micro);
    EXPECT_EQ(named->tensor.what, expected->tensor.what);
    EXPECT_EQ(named->rank, expected->rank);
    EXPECT_NE(expected->rank, 0) << "no rank but the first is asked about";
  }
}

TEST(MpiPlans, ProcessesTrainAsThreadsDo) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  const char* asked = std::getenv("TRIREME_PLANS");
  const int wanted = asked == nullptr ? 8 : std::atoi(asked);
  comm::Communicator world = world_of_processes();
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
