#include "trireme/train/plan_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/planner/at_once.h"
#include "trireme/planner/integer_program.h"
#include "trireme/planner/op_strategies.h"
#include "trireme/train/fit.h"
#include "trireme/train/graphs.h"

namespace trireme::train {
namespace {

using planner::Candidate;
using planner::Scored;

class PlanSearchTest : public ::testing::Test {
 protected:
  static Config config(const std::vector<std::string>& settings) {
    std::vector<std::string> all = {"model.vocab=512",  "runtime.device=cpu",  "train.batch=16",
                                    "model.layers=4",   "model.width=256",     "model.heads=4",
                                    "model.context=64", "train.precision=bf16"};
    all.insert(all.end(), settings.begin(), settings.end());
    return parse_config("", "test", all);
  }
  static PlanRequest request(const std::string& cluster, int ranks, std::vector<std::string> fixed = {}) {
    PlanRequest r;
    r.cluster = cluster::load_cluster(cluster);
    r.cluster.node.devices = 4;
    r.ranks = ranks;
    r.fixed = std::move(fixed);
    return r;
  }
  // Every way to cut so many layers in parts.
  static std::vector<std::vector<std::int64_t>> cuts(std::int64_t layers, int parts) {
    if (parts == 1) return {{layers}};
    std::vector<std::vector<std::int64_t>> all;
    for (std::int64_t first = 1; first + parts - 1 <= layers; ++first)
      for (std::vector<std::int64_t> rest : cuts(layers - first, parts - 1)) {
        rest.insert(rest.begin(), first);
        all.push_back(rest);
      }
    return all;
  }
  // Compiles and simulates every point of the space, with every cut.
  static double exhaustive(const PlanSearch& search, planner::Objective objective, std::size_t& points) {
    std::vector<Candidate> all;
    for (Candidate c : planner::enumerate(search.problem().space))
      for (const std::vector<std::int64_t>& cut : cuts(search.problem().space.layers, c.parts())) {
        c.stages = c.pp > 1 ? cut : std::vector<std::int64_t>{};
        all.push_back(c);
      }
    points += all.size();
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<double> values(all.size(), kNever);
    planner::each_at_once(all.size(), std::thread::hardware_concurrency(), [&](std::size_t i) {
      Scored s = search.problem().score(all[i]);
      s.candidate = all[i];
      if (s.feasible()) values[i] = s.value(objective);
    });
    return values.empty() ? kNever : *std::min_element(values.begin(), values.end());
  }

  Registry registry_;
};

struct Small {
  const char* cluster;
  int ranks;
  std::vector<std::string> settings;
  std::vector<std::string> fixed;
  planner::Objective objective = planner::Objective::time;
};

// Problems whose every point can be compiled and simulated. The quick test takes some of them.
std::vector<Small> small_problems() {
  std::vector<Small> all;
  const std::vector<std::vector<std::string>> models = {
      {"model.family=gpt2"},
      {"model.family=llama"},
      {"model.family=mlp", "data.images=synthetic", "model.image=8", "model.width=512"},
      {"model.family=gpt2", "model.width=512", "model.layers=2", "train.batch=8"},
      {"model.family=convnet", "data.images=synthetic", "model.image=16", "model.width=16", "train.precision=f32"}};
  const std::vector<std::string> fixed = {"memory.remat", "parallel.sequence", "train.micro_batch", "memory.offload"};
  for (const auto& model : models)
    for (const auto& [cluster, ranks, rows] :
         {std::tuple("a100", 2, 2), std::tuple("h100", 4, 1), std::tuple("a100", 8, 1), std::tuple("b200", 4, 2)}) {
      Small p{cluster, ranks, model, fixed};
      p.settings.push_back(fmt::format("train.micro_batch={}", rows));
      all.push_back(p);
    }
  all[3].objective = planner::Objective::memory;
  all[6].objective = planner::Objective::cost;
  return all;
}

TEST_F(PlanSearchTest, EqualsExhaustiveSearchOnSmallProblems) {
  const std::vector<Small> problems = small_problems();
  const bool whole = std::getenv("TRIREME_WHOLE") != nullptr;
  std::size_t points = 0;
  // Text, a plain network and images over h: the cheapest of each.
  const std::set<std::size_t> quick = {0, 9, 16};
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (!whole && !quick.contains(i)) continue;
    const Small& p = problems[i];
    PlanRequest r = request(p.cluster, p.ranks, p.fixed);
    r.search.objective = p.objective;
    const PlanSearch search(config(p.settings), registry_, r);
    const planner::SearchResult found = search.run();
    ASSERT_FALSE(found.best.empty()) << i;
    const double best = exhaustive(search, p.objective, points);
    // The search also looks at stages that are cut within a layer, so it may be ahead.
    EXPECT_LE(found.best.front().value(p.objective), best * (1 + 1e-9))
        << i << " " << p.cluster << " " << p.ranks << ": " << planner::describe(found.best.front().candidate);
  }
  RecordProperty("points", static_cast<int>(points));
  if (whole) std::cout << problems.size() << " problems, " << points << " plans compiled and simulated\n";
}

TEST_F(PlanSearchTest, TheSpaceOfAModelHasItsPipelines) {
  const PlanSearch search(config({}), registry_, request("h100", 4));
  std::set<std::string> meshes, schedules;
  for (const Candidate& c : planner::enumerate(search.problem().space)) {
    meshes.insert(planner::mesh_text(c));
    if (c.pp > 1) schedules.insert(fmt::format("{} {}", c.pp, planner::pipeline_text(c.pipeline)));
  }
  EXPECT_EQ(meshes, (std::set<std::string>{"dp=4", "pp=2,dp=2", "pp=4", "dp=2,tp=2", "pp=2,tp=2", "tp=4"}));
  EXPECT_EQ(schedules,
            (std::set<std::string>{"2 1f1b", "2 interleaved:2", "2 zero-bubble", "4 1f1b", "4 zero-bubble"}));
}

// Gradients of large layers over a slow link take longer than their products; activations between stages do not.
TEST_F(PlanSearchTest, APipelineWinsWhereLayersAreLargeAndTheLinkIsSlow) {
  PlanRequest r = request("a100", 4, {"memory.remat", "memory.offload"});
  r.cluster.node.devices = 1;
  r.cluster.network.bandwidth = 1e9;
  const PlanSearch search(config({"model.width=1024"}), registry_, r);
  const Scored best = search.run().best.front();
  EXPECT_EQ(best.candidate.pp, 4) << planner::describe(best.candidate);
  Candidate data{.pp = 1, .dp = 4};
  data.layer.micro_batch = 4;
  EXPECT_LT(3 * best.seconds, search.problem().score(data).seconds);
}

// What fits for the search fits for the simulator: ranks of a CPU share their node's memory.
TEST_F(PlanSearchTest, TheLimitIsWhatTheSimulatorSays) {
  PlanRequest r = request("a100", 2, {"parallel.mesh", "memory.remat", "memory.offload", "parallel.zero"});
  r.cluster.device.kind = "cpu";
  r.cluster.transport = "threads";
  r.cluster.node.cores = 2;
  const Config c = config({"parallel.mesh=dp=2", "runtime.threads=1"});
  const auto found = [&](double memory) {
    r.cluster.device.memory = memory;
    std::optional<PlanSearch::Winner> winner;
    const Scored best = PlanSearch(c, registry_, r).run(&winner).best.front();
    EXPECT_TRUE(winner->simulation.fits);
    return static_cast<double>(best.bytes);
  };
  const double largest = found(64e9);
  EXPECT_LE(found(2 * largest - 1), largest - 1);
}

TEST_F(PlanSearchTest, IsNeverBehindWhatHandsWouldChoose) {
  const PlanSearch search(config({}), registry_, request("h100", 8, {"memory.remat", "memory.offload"}));
  const Scored best = search.run().best.front();
  Candidate data{.pp = 1, .dp = 8};
  data.layer.micro_batch = 2;
  Candidate sharded = data;
  sharded.zero = 3;
  Candidate megatron{.pp = 2, .dp = 1};
  megatron.layer.tp = 4;
  for (const Candidate& hand : {data, sharded, megatron})
    EXPECT_LE(best.seconds, search.problem().score(hand).seconds * (1 + 1e-9)) << planner::describe(hand);
}

TEST_F(PlanSearchTest, TheSameSeedGivesTheSameAndAMarkovChainFindsNothingMuchBetter) {
  const Config c = config({"train.batch=8"});
  PlanRequest r = request("a100", 4, {"memory.offload", "parallel.sequence"});
  r.search.moves = 4000;
  const planner::SearchResult one = PlanSearch(c, registry_, r).run();
  r.search.method = planner::Method::mcmc;
  r.search.seed = 5;
  const planner::SearchResult chain = PlanSearch(c, registry_, r).run();
  const planner::SearchResult same = PlanSearch(c, registry_, r).run();
  EXPECT_EQ(chain.best.front().candidate, same.best.front().candidate);
  EXPECT_GE(chain.best.front().seconds, 0.98 * one.best.front().seconds);
  EXPECT_LE(chain.best.front().seconds, 1.1 * one.best.front().seconds);
}

TEST_F(PlanSearchTest, AStopKeepsTheBestSoFarAndWhatIsFixedStays) {
  PlanRequest r = request("a100", 4, {"parallel.zero", "parallel.mesh"});
  const PlanSearch search(config({"parallel.zero=1", "parallel.mesh=dp=4"}), registry_, r);
  for (const Candidate& c : planner::enumerate(search.problem().space)) {
    EXPECT_EQ(c.zero, 1);
    EXPECT_EQ(planner::mesh_text(c), "dp=4");
  }
  int asked = 0;
  PlanRequest stopped = request("a100", 8, {"memory.remat"});
  stopped.search.stop = [&] { return ++asked > 8; };
  const planner::SearchResult result = PlanSearch(config({}), registry_, stopped).run();
  EXPECT_TRUE(result.stopped);
}

TEST_F(PlanSearchTest, ALimitThatNothingMeetsIsRefusedWithTheNearest) {
  const PlanSearch search(config({"memory.limit=1MiB"}), registry_, request("a100", 2));
  try {
    search.run();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    EXPECT_NE(e.message().find("no plan fits 1.0 MiB a rank"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("the nearest is"), std::string::npos) << e.message();
  }
}

// A plan of many layers and micro-batches is scored from shorter models of it: what comes out is what all of it takes.
// Bytes too, although where the peak lies depends on how many layers there are.
TEST_F(PlanSearchTest, ShorterModelsStandForTheWhole) {
  const PlanSearch search(
      config({"model.layers=24", "model.width=1024", "model.heads=8", "model.context=512", "train.batch=64"}),
      registry_, request("a100", 8));
  Candidate data{.pp = 1, .dp = 8};
  data.zero = 3;
  Candidate tensor{.pp = 1, .dp = 2};
  tensor.layer.tp = 4;
  tensor.layer.remat = planner::RematPolicy::Kind::selective;
  Candidate stages{.pp = 2, .dp = 4};
  stages.zero = 1;
  stages.pipeline = program::parse_pipeline("1f1b");
  stages.stages = {13, 11};
  for (const Candidate& c : {data, tensor, stages}) {
    const Scored scored = search.problem().score(c);
    ASSERT_TRUE(scored.refused.empty()) << scored.refused;
    EXPECT_FALSE(scored.exact);
    const OnCluster whole = search.compiled(c);
    const double seconds = simulator::simulate(whole.compiled, whole.cluster).step_seconds;
    EXPECT_NEAR(scored.seconds / seconds, 1, 0.02) << planner::describe(c);
    EXPECT_NEAR(static_cast<double>(scored.bytes) / static_cast<double>(whole.compiled.arena_bytes()), 1, 0.02)
        << planner::describe(c);
  }
}

TEST_F(PlanSearchTest, TheWinnerIsCompiledInFull) {
  const PlanSearch search(config({"model.layers=12", "train.batch=64", "parallel.mesh=dp=2", "parallel.zero=1"}),
                          registry_,
                          request("a100", 2, {"parallel.mesh", "parallel.zero", "memory.remat", "memory.offload"}));
  std::optional<PlanSearch::Winner> winner;
  const Scored best = search.run(&winner).best.front();
  EXPECT_TRUE(best.exact);
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate, best.candidate);
  EXPECT_EQ(winner->on.compiled.arena_bytes(), best.bytes);
  EXPECT_EQ(winner->simulation.step_seconds, best.seconds);
}

// What does not fit otherwise is offloaded; what fits is not.
TEST_F(PlanSearchTest, OffloadsWhereMemoryNeedsIt) {
  const std::vector<std::string> fixed = {"parallel.mesh", "memory.remat", "train.micro_batch", "parallel.zero"};
  const std::vector<std::string> model = {"model.width=512", "train.batch=4", "train.micro_batch=2",
                                          "parallel.mesh=dp=2"};
  const PlanSearch roomy(config(model), registry_, request("a100", 2, fixed));
  const Scored plain = roomy.run().best.front();
  EXPECT_FALSE(plain.candidate.offload.any()) << planner::describe(plain.candidate);
  std::vector<std::string> tight = model;
  tight.push_back(fmt::format("memory.limit={}", plain.bytes * 7 / 10));
  const Scored found = PlanSearch(config(tight), registry_, request("a100", 2, fixed)).run().best.front();
  EXPECT_TRUE(found.candidate.offload.any()) << planner::describe(found.candidate);
  EXPECT_LE(found.bytes, plain.bytes * 7 / 10);
  EXPECT_GE(found.seconds, plain.seconds);
}

TEST_F(PlanSearchTest, TheSpaceHasImagesAxesAndWhatIsAllowed) {
  PlanRequest r = request("h100", 4);
  r.precision = r.compress = true;
  const PlanSearch images(config({"model.family=convnet", "data.images=synthetic", "model.image=16", "model.width=16",
                                  "train.precision=f32"}),
                          registry_, r);
  std::set<std::string> seen;
  for (const Candidate& c : planner::enumerate(images.problem().space)) {
    EXPECT_EQ(c.ranks(), 4);
    seen.insert(planner::mesh_text(c));
    seen.insert("precision " + c.layer.precision);
    seen.insert(std::string("compress ") + compression_text(c.compress));
  }
  for (const char* one :
       {"h=4", "h=2,w=2", "dp=2,h=2", "tp=2,h=2", "dp=4", "precision ", "precision bf16", "compress int8"})
    EXPECT_TRUE(seen.contains(one)) << one;
  // Nothing that changes the numbers unless it is allowed, and no image of a text.
  for (const Candidate& c : planner::enumerate(PlanSearch(config({}), registry_, request("h100", 4)).problem().space)) {
    EXPECT_TRUE(c.layer.precision.empty() && c.compress == planner::Compression::configured);
    EXPECT_EQ(c.layer.h * c.layer.w, 1);
  }
  Candidate spatial{.pp = 1, .dp = 1};
  spatial.layer.h = 4;
  spatial.layer.micro_batch = 16;
  const Scored scored = images.problem().score(spatial);
  EXPECT_TRUE(scored.feasible()) << scored.refused;
}

// The estimate is for ordering; it must not be far from what is simulated.
TEST_F(PlanSearchTest, EstimatesFollowTheSimulation) {
  const PlanSearch search(
      config({"model.width=1024", "model.heads=8", "model.layers=8", "model.context=512", "train.batch=32"}), registry_,
      request("a100", 8, {"memory.offload", "memory.remat"}));
  const planner::SearchResult result = search.run();
  for (const Scored& s : result.best) EXPECT_NEAR(s.estimated / s.seconds, 1, 0.35) << planner::describe(s.candidate);
}

// From no annotation at all: columns of the first matrix of a pair, rows of the second, as Megatron has them.
TEST_F(PlanSearchTest, StrategiesOfOpsComeOutAsMegatrons) {
  if (!planner::has_integer_solver()) GTEST_SKIP() << "this build has no integer solver";
  Config c = config({"model.width=2048", "model.heads=16", "model.layers=2", "model.context=1024", "train.batch=2",
                     "train.micro_batch=1", "parallel.mesh=tp=4", "model.vocab=512"});
  resolve_model(c, 512);
  Planned planned = make_plan(c, registry_, {.threads = 1, .step_alone = true});
  planned.plan.sharding.clear();
  const planner::ShardingChoice choice = planner::choose_shardings(
      planned.graphs, planned.plan, cluster::load_cluster("a100"), {.axis = "tp", .state_share = 0.3});
  std::map<std::string, std::string> found;
  for (const passes::Annotation& a : choice.annotations) found[a.pattern] = a.sharding;
  EXPECT_EQ(found["blocks.*.mlp.up.weight"], "0:tp");
  EXPECT_EQ(found["blocks.*.mlp.down.weight"], "1:tp");
  // A person's annotation is a constraint; the rest is chosen around it.
  const planner::ShardingChoice around =
      planner::choose_shardings(planned.graphs, planned.plan, cluster::load_cluster("a100"),
                                {.axis = "tp", .state_share = 0.3, .annotations = {{"*.mlp.up.weight", "in:tp"}}});
  found.clear();
  for (const passes::Annotation& a : around.annotations) found[a.pattern] = a.sharding;
  EXPECT_EQ(found["blocks.*.mlp.up.weight"], "1:tp");
  EXPECT_GE(around.seconds, choice.seconds);
}

// A search that is stopped says so in the place of what comes next.
TEST_F(PlanSearchTest, AFitThatIsStoppedSaysSo) {
  const Registry registry;
  FitRequest asked;
  asked.plan = request("h100", 1);
  std::size_t sizes = 0;
  asked.on_try = [&](const std::string&, std::size_t tried) { sizes = tried; };
  asked.plan.search.stop = [&] { return sizes >= 2; };
  const Fit some = largest_fit(config({}), registry, asked);
  EXPECT_TRUE(some.stopped);
  EXPECT_FALSE(some.what.empty());
  EXPECT_NE(some.next.find("the search was stopped"), std::string::npos) << some.next;
  asked.plan.search.stop = [] { return true; };
  EXPECT_TRUE(largest_fit(config({}), registry, asked).stopped);
}

}  // namespace
}  // namespace trireme::train
