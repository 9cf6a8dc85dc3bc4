#include "trireme/compress/search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/core/error.h"

namespace trireme::compress {
namespace {

train::Config text_model() {
  train::Config config;
  config.model.layers = 4;
  config.model.width = 128;
  config.model.heads = 4;
  config.model.ffn = 512;
  return config;
}

double cost(const ModelShape& s) {
  return static_cast<double>(s.layers * (4 * s.width * s.width + 2 * s.width * s.ffn) + 256 * s.width);
}

// Losses fall with the steps, and are least for six layers of 96.
double loss(const ModelShape& s, std::int64_t steps) {
  return 2 + 1.0 / static_cast<double>(steps) + 0.05 * std::abs(static_cast<double>(s.layers - 6)) +
         0.002 * std::abs(static_cast<double>(s.width - 96));
}

SearchOptions options_for(const ShapeSpace& space) {
  SearchOptions options;
  options.steps = 64;
  options.budget = cost(space.base());
  options.candidates = 8;
  options.generations = 4;
  options.children = 3;
  options.cost = [](const ModelShape& s) { return std::optional(cost(s)); };
  options.train = [](std::span<const Candidate* const> who, std::int64_t steps) {
    std::vector<std::optional<double>> losses;
    for (const Candidate* c : who) losses.emplace_back(loss(c->shape, steps));
    return losses;
  };
  return options;
}

TEST(Search, CandidatesUseTheBudgetAndNoMore) {
  const ShapeSpace space(text_model(), false);
  const SearchOptions options = options_for(space);
  const SearchResult found = search(space, options);
  EXPECT_GE(found.candidates.size(), 8U + 4 * 2);  // of the children, those that were not seen before
  EXPECT_LE(found.candidates.size(), 8U + 4 * 3);
  for (const Candidate& c : found.candidates) {
    EXPECT_LE(c.cost, options.budget) << text_of(c.shape);
    EXPECT_GE(c.cost, 0.9 * options.budget) << text_of(c.shape);
    EXPECT_EQ(c.shape.width % c.shape.heads, 0);
    EXPECT_EQ(c.cost, cost(c.shape));
  }
}

TEST(Search, HalvesAtEachRungAndTheGivenShapeGoesAllTheWay) {
  const ShapeSpace space(text_model(), false);
  SearchOptions options = options_for(space);
  options.generations = 0;
  std::map<std::int64_t, std::vector<std::int64_t>> trained;  // ids by steps
  options.train = [&](std::span<const Candidate* const> who, std::int64_t steps) {
    std::vector<std::optional<double>> losses;
    for (const Candidate* c : who) {
      trained[steps].push_back(c->id);
      losses.emplace_back(c->id == 0 ? 9.0 : loss(c->shape, steps));  // the given shape is the worst
    }
    return losses;
  };
  const SearchResult found = search(space, options);
  EXPECT_EQ(trained[16].size(), 8U);
  EXPECT_EQ(trained[32].size(), 4U + 1);
  EXPECT_EQ(trained[64].size(), 2U + 1);
  EXPECT_EQ(trained[64].back(), 0);
  EXPECT_EQ(found.base, 0);
  EXPECT_NE(found.best, 0);
  // Those that went on were the better ones.
  for (const std::int64_t id : trained[32])
    for (const Candidate& c : found.candidates)
      if (id != 0 && !c.loss.contains(32)) {
        EXPECT_LE(found.candidates[static_cast<std::size_t>(id)].loss.at(16), c.loss.at(16));
      }
}

TEST(Search, EvolutionComesCloserThanTheDrawsAlone) {
  const ShapeSpace space(text_model(), false);
  int better = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SearchOptions options = options_for(space);
    options.seed = seed;
    const SearchResult evolved = search(space, options);
    options.generations = 0;
    const SearchResult drawn = search(space, options);
    const auto best = [&](const SearchResult& r) {
      return r.candidates[static_cast<std::size_t>(r.best)].loss.at(options.steps);
    };
    EXPECT_LE(best(evolved), best(drawn));
    EXPECT_LT(best(evolved), loss(space.base(), options.steps));
    better += best(evolved) < best(drawn) ? 1 : 0;
  }
  EXPECT_GE(better, 2);
}

TEST(Search, AskedToStopItEndsAndGoesOnToTheSameResult) {
  const ShapeSpace space(text_model(), false);
  const SearchOptions undisturbed = options_for(space);
  const SearchResult expected = search(space, undisturbed);
  std::map<std::pair<std::int64_t, std::int64_t>, double> known;
  SearchResult found;
  int calls = 0;
  do {
    ASSERT_LT(++calls, 100);
    int left = 3;  // trainings until it is stopped
    SearchOptions options = undisturbed;
    options.train = [&](std::span<const Candidate* const> who, std::int64_t steps) {
      std::vector<std::optional<double>> losses;
      for (const Candidate* c : who) {
        const auto key = std::pair(c->id, steps);
        if (!known.contains(key) && left-- > 0) known[key] = loss(c->shape, steps);
        losses.push_back(known.contains(key) ? std::optional(known[key]) : std::nullopt);
      }
      return losses;
    };
    found = search(space, options);
  } while (found.stopped);
  EXPECT_GT(calls, 3);
  EXPECT_EQ(found.best, expected.best);
  ASSERT_EQ(found.candidates.size(), expected.candidates.size());
  for (std::size_t i = 0; i < found.candidates.size(); ++i) {
    EXPECT_EQ(found.candidates[i].shape, expected.candidates[i].shape);
    EXPECT_EQ(found.candidates[i].loss, expected.candidates[i].loss);
  }
}

TEST(Search, ALossThatIsNotFiniteIsTheWorst) {
  const ShapeSpace space(text_model(), false);
  SearchOptions options = options_for(space);
  options.generations = 0;
  options.train = [](std::span<const Candidate* const> who, std::int64_t steps) {
    std::vector<std::optional<double>> losses;
    for (const Candidate* c : who) losses.emplace_back(c->id == 1 ? NAN : loss(c->shape, steps));
    return losses;
  };
  const SearchResult found = search(space, options);
  EXPECT_FALSE(found.candidates[1].loss.contains(options.steps));
  EXPECT_NE(found.best, 1);
}

TEST(Search, ABudgetThatNothingMeetsGivesNoCandidates) {
  const ShapeSpace space(text_model(), false);
  SearchOptions options = options_for(space);
  options.budget = 3;
  const SearchResult found = search(space, options);
  EXPECT_TRUE(found.candidates.empty());
  EXPECT_EQ(found.best, -1);
}

TEST(Search, GroupsOfHeadsAreKept) {
  train::Config config = text_model();
  config.model.kv_heads = 2;
  const ShapeSpace space(config, false);
  for (const Candidate& c : search(space, options_for(space)).candidates) {
    const train::Config own = space.with(c.shape);
    EXPECT_EQ(own.model.heads, 2 * own.model.kv_heads);
    EXPECT_EQ(own.model.head_dim * own.model.heads, own.model.width);
  }
}

TEST(Search, ImagesHaveLayersAndWidth) {
  train::Config config;
  config.model.layers = 2;
  config.model.width = 16;
  const ShapeSpace space(config, true, {1, 2, 3});
  SearchOptions options = options_for(space);
  options.cost = [](const ModelShape& s) {
    return std::optional(static_cast<double>(9 * s.width * s.width << (2 * s.layers)));
  };
  options.budget = *options.cost(space.base());
  options.candidates = 4;
  const SearchResult found = search(space, options);
  EXPECT_GE(found.candidates.size(), 2U);
  for (const Candidate& c : found.candidates) {
    EXPECT_EQ(c.shape.heads, 0);
    EXPECT_LE(c.shape.layers, 3);
    EXPECT_EQ(c.shape.width % 4, 0);
  }
}

TEST(Budget, Amounts) {
  EXPECT_EQ(parse_budget("params=2M").most, 2e6);
  EXPECT_EQ(parse_budget("params=120k").most, 120e3);
  EXPECT_EQ(parse_budget("bytes=8MiB").most, 8 << 20);
  EXPECT_DOUBLE_EQ(parse_budget("step=20ms").most, 0.02);
  EXPECT_DOUBLE_EQ(parse_budget("decode=500us").most, 0.0005);
  EXPECT_EQ(parse_budget("params").most, 0);
  for (const char* wrong : {"", "flops=3", "params=", "params=-1", "params=2G", "step=20", "params=nan", "step=infs"})
    EXPECT_THROW(parse_budget(wrong), Error) << wrong;
}

TEST(Search, PictureShowsTheBestAndTheGivenOne) {
  const ShapeSpace space(text_model(), false);
  const SearchResult found = search(space, options_for(space));
  const std::string text = picture(found, Budget::Kind::parameters);
  EXPECT_NE(text.find(fmt::format("*{}", found.best)), std::string::npos) << text;
  EXPECT_NE(text.find("o"), std::string::npos);
  EXPECT_NE(text.find("after 64 steps"), std::string::npos);
}

}  // namespace
}  // namespace trireme::compress
