#include "trireme/train/plan_search.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/planner/integer_program.h"
#include "trireme/planner/op_strategies.h"
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
    double best = std::numeric_limits<double>::infinity();
    for (Candidate c : planner::enumerate(search.problem().space))
      for (const std::vector<std::int64_t>& cut : cuts(search.problem().space.layers, c.parts())) {
        c.stages = c.pp > 1 ? cut : std::vector<std::int64_t>{};
        Scored s = search.problem().score(c);
        s.candidate = c;
        ++points;
        if (s.feasible()) best = std::min(best, s.value(objective));
      }
    return best;
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
  for (std::size_t i = 0; i < problems.size(); i += whole ? 1 : 9) {
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
}

TEST_F(PlanSearchTest, IsNeverBehindWhatHandsWouldChoose) {
  const PlanSearch search(config({}), registry_, request("h100", 8));
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
  const Config c = config({});
  PlanRequest r = request("a100", 4);
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
  PlanRequest stopped = request("a100", 8);
  stopped.search.stop = [&] { return ++asked > 40; };
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

// The estimate is for ordering; it must not be far from what is simulated.
TEST_F(PlanSearchTest, EstimatesFollowTheSimulation) {
  const PlanSearch search(
      config({"model.width=1024", "model.heads=8", "model.layers=8", "model.context=512", "train.batch=32"}), registry_,
      request("a100", 8));
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
}

}  // namespace
}  // namespace trireme::train
