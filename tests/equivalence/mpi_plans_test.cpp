// Random plans whose ranks are processes train as those whose ranks are threads, to the bit. Every rank is a process
// that runs this test: tests/mpi/launch 4 equivalence_test --gtest_filter=MpiPlans.* with TRIREME_TEST_TRANSPORT=mpi.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>

#include "equivalence/random_plan.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/trainer.h"

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

// Of some images, of which one may have a value that is not finite.
class SomeImages final : public data::Dataset {
 public:
  explicit SomeImages(const models::ModelConfig& model, std::int64_t spoiled = -1)
      : images_(model.image, model.channels, model.classes, 0, 24), spoiled_(spoiled) {}

  std::int64_t samples() const override { return images_.samples(); }
  std::int64_t tokens_per_sample() const override { return 1; }
  void resize(data::Batch& batch, std::int64_t rows) const override { images_.resize(batch, rows); }
  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    images_.read(sample, row, batch);
    const std::int64_t each = std::ssize(batch.images) / batch.rows;
    if (sample == spoiled_)
      batch.images[static_cast<std::size_t>(row * each + 5)] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  data::SyntheticImages images_;
  std::int64_t spoiled_;
};

// Four ranks, with and without servers among them.
struct FourRanks {
  const char* mesh;
  const char* server = "none";
  std::int64_t servers = 1;
  std::string text() const { return fmt::format("{}, {} servers: {}", mesh, servers, server); }
};

train::Config config_of(const FourRanks& ranks) {
  train::Config config = small_model("mlp");
  config.train.batch = 12;
  config.train.micro_batch = 6;
  config.train.steps = 2;
  config.train.eval_every = 1;
  config.data.order = "sequential";
  config.parallel.server = ranks.server;
  config.parallel.servers = ranks.servers;
  return over_mesh(config, ranks.mesh);
}

train::TrainerOptions without_files(comm::Communicator& world, data::Data data) {
  train::TrainerOptions options;
  options.write = false;
  options.world = &world;
  options.data = std::move(data);
  return options;
}

data::Data data_of(const models::ModelConfig& model, std::int64_t spoiled, std::int64_t spoiled_held_out) {
  data::Data data;
  data.train = std::make_shared<SomeImages>(model, spoiled);
  data.eval = std::make_shared<SomeImages>(model, spoiled_held_out);
  return data;
}

// Processes that have the row, that have others, and servers, which have none and know no held-out loss.
TEST(MpiPlans, EveryProcessNamesTheValueThatIsNotFinite) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  comm::Communicator world = world_of_processes();
  if (world.size() != 4) GTEST_SKIP() << "four ranks are asked for";
  const train::Registry registry;
  for (const FourRanks& ranks :
       {FourRanks{"dp=2,pp=2"}, FourRanks{"dp=4"}, FourRanks{"dp=3", "sync"}, FourRanks{"dp=2", "sync", 2}}) {
    SCOPED_TRACE(ranks.text());
    train::Config config = config_of(ranks);
    {
      train::Trainer trainer(config, registry, without_files(world, data_of(config.model, -1, 7)));
      trainer.start();
      const train::Outcome outcome = trainer.run();
      EXPECT_EQ(outcome.steps, 2);
      ASSERT_TRUE(outcome.evaluation);
      EXPECT_EQ(outcome.evaluation->bad_input, "held-out sample 7: input 'images', element 5 is NaN");
    }
    // No overflow of gradients, at any scale.
    config.train.precision = "fp16";
    config.train.loss_scale = 64;
    train::Trainer trainer(config, registry, without_files(world, data_of(config.model, 19, -1)));
    trainer.start();
    std::string said = "nothing";
    try {
      trainer.run();
    } catch (const train::BadStep& e) {
      said = e.what();
    }
    EXPECT_NE(said.find("step 2: the loss is not a number and"), std::string::npos) << said;
    EXPECT_NE(said.find("; input 'images', sample 7 of the batch (sample 19 of the training data), element 5 is NaN; "),
              std::string::npos)
        << said;
  }
}

// Held-out images of which one cannot be read from the second evaluation on.
class LostImages final : public data::Dataset {
 public:
  LostImages(const models::ModelConfig& model, std::int64_t lost) : images_(model), lost_(lost) {}

  std::int64_t samples() const override { return images_.samples(); }
  std::int64_t tokens_per_sample() const override { return 1; }
  void resize(data::Batch& batch, std::int64_t rows) const override { images_.resize(batch, rows); }
  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    if (sample == lost_ && batch.step > 1) throw std::runtime_error("the disk went away");
    images_.read(sample, row, batch);
  }

 private:
  SomeImages images_;
  std::int64_t lost_;
};

// One process has the row; all of them save what was trained before they end.
TEST(MpiPlans, EveryProcessSavesBeforeAnEvaluationEndsTheRun) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  comm::Communicator world = world_of_processes();
  if (world.size() != 4) GTEST_SKIP() << "four ranks are asked for";
  const train::Registry registry;
  for (const FourRanks& ranks : {FourRanks{"dp=2,pp=2"}, FourRanks{"dp=4"}, FourRanks{"dp=3", "sync"}}) {
    SCOPED_TRACE(ranks.text());
    train::Config config = config_of(ranks);
    config.output.dir = (std::filesystem::temp_directory_path() / fmt::format("trireme_lost_{}", ::getppid())).string();
    train::TrainerOptions options = without_files(world, data_of(config.model, -1, -1));
    options.data->eval = std::make_shared<LostImages>(config.model, 7);
    options.write = true;
    options.mode = train::RunMode::overwrite;
    {
      train::Trainer trainer(config, registry, options);
      trainer.start();
      std::string said = "nothing";
      try {
        trainer.run();
      } catch (const Error& e) {
        said = e.message();
      }
      // The one that reports it names the rank that could not read, and why.
      EXPECT_NE(said.find(": the disk went away; "), std::string::npos) << said;
      EXPECT_EQ(said.find("rank "), 0U) << said;
      EXPECT_NE(said.find("; the state is saved as step 2 in "), std::string::npos) << said;
      world.barrier();  // the first process names the checkpoint
      EXPECT_EQ(train::checkpoint_steps(trainer.folder()), std::vector<std::int64_t>{2});
    }
    world.barrier();
    if (world.rank() == 0) std::filesystem::remove_all(config.output.dir);
    world.barrier();
  }
}

// A process without rows skips the step with the others, whatever it does at the end of one.
TEST(MpiPlans, EveryProcessSkipsAStepThatOverflows) {
  if (!ranks_are_processes()) GTEST_SKIP() << "ranks are not processes here";
  comm::Communicator world = world_of_processes();
  if (world.size() != 4) GTEST_SKIP() << "four ranks are asked for";
  const train::Registry registry;
  for (const FourRanks& ranks : {FourRanks{"dp=4"}, FourRanks{"dp=3", "sync"}, FourRanks{"dp=2", "sync", 2},
                                 FourRanks{"dp=3", "async"}, FourRanks{"dp=3", "ssp:2"}}) {
    SCOPED_TRACE(ranks.text());
    train::Config config = config_of(ranks);
    config.train.steps = 4;
    config.train.precision = "fp16";
    config.train.loss_scale = 0x1p32;
    train::Trainer trainer(config, registry, without_files(world, data_of(config.model, -1, -1)));
    trainer.start();
    const train::Outcome outcome = trainer.run();
    EXPECT_EQ(outcome.steps, 4);
    // A server of asynchronous workers counts no steps.
    const bool counts = trainer.session().row_ranks() > 0 || trainer.compiled().synchronous();
    EXPECT_EQ(outcome.skipped, counts ? 4 : 0);
  }
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
      if (plan.refusal) throw *plan.refusal;
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
