#include "trireme/planner/remat_chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace trireme::planner {
namespace {

// `most`: cheap sets of a segment.
std::vector<RematSegment> random_chain(std::mt19937& random, std::size_t segments, std::uint64_t most) {
  const auto between = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  std::vector<RematSegment> chain(segments);
  for (std::size_t k = 0; k < segments; ++k) {
    RematSegment& s = chain[k];
    s.input = k == 0 ? 0 : between(0, 9);
    s.reads_input = k > 0 && between(0, 3) > 0;
    s.saved = between(0, 20);
    s.forward = between(0, 6);
    s.running = s.forward + between(0, 6);
    s.backward = between(0, 12);
    s.last_time = static_cast<double>(between(0, 20));
    for (std::uint64_t i = 0, sets = between(0, most); i < sets; ++i) {
      s.cheap.push_back({between(0, s.saved), static_cast<double>(between(0, 8)), {}});
      if (i > 0) s.cheap.back().kept = {static_cast<std::int32_t>(i)};
      s.last_time = std::max(s.last_time, s.cheap.back().time);
    }
    s.inner_time = s.last_time + static_cast<double>(between(0, 10));
  }
  chain.back().always_kept = true;
  return chain;
}

// What happens to memory, step by step, from the definition: `holds` says what each segment holds, `cheap` which of its
// cheap sets is made again where it holds the rest, and `cut`[k] whether the tensor that enters segment k is held when
// segments k - 1 and k both forget.
class Simulation {
 public:
  Simulation(const std::vector<RematSegment>& chain, const std::vector<Hold>& holds,
             const std::vector<std::size_t>& cheap, const std::vector<bool>& cut)
      : chain_(chain), holds_(holds), cheap_(cheap), cut_(cut) {}

  RematCost run() {
    for (std::size_t k = 0; k < chain_.size(); ++k) forward(k);
    for (std::size_t end = chain_.size(); end > 0;) {
      std::size_t begin = end - 1;
      if (holds_[begin] == Hold::input)
        while (begin > 0 && holds_[begin - 1] == Hold::input && !cut_[begin]) --begin;
      backward(begin, end);
      end = begin;
    }
    return {seconds_, peak_};
  }

 private:
  bool begins_group(std::size_t k) const {
    return holds_[k] != Hold::input || k == 0 || holds_[k - 1] != Hold::input || cut_[k];
  }
  void see(std::uint64_t more) { peak_ = std::max(peak_, held_ + more); }

  void forward(std::size_t k) {
    const RematSegment& s = chain_[k];
    if (holds_[k] == Hold::keep) {
      see(s.input + s.saved + s.forward);
      held_ += s.saved + (s.reads_input ? s.input : 0);
    } else if (holds_[k] == Hold::expensive) {
      held_ += s.input + s.cheap[cheap_[k]].held;
      see(s.running);
    } else {
      if (begins_group(k)) held_ += s.input;
      see(s.running);
    }
  }

  void backward(std::size_t begin, std::size_t end) {
    if (holds_[begin] == Hold::input) {
      const std::uint64_t gradient = end < chain_.size() ? chain_[end].input : 0;
      std::uint64_t made = 0;
      for (std::size_t k = begin; k < end; ++k) {
        made += chain_[k].saved + (k > begin && chain_[k].reads_input ? chain_[k].input : 0);
        see(made + chain_[k].forward + gradient);
        seconds_ += k + 1 < end ? chain_[k].inner_time : chain_[k].last_time;
      }
      for (std::size_t k = end; k-- > begin;) {
        see(made + chain_[k].backward);
        made -= chain_[k].saved + (k > begin && chain_[k].reads_input ? chain_[k].input : 0);
      }
      held_ -= chain_[begin].input;
      return;
    }
    const RematSegment& s = chain_[begin];
    if (holds_[begin] == Hold::keep) {
      see(s.backward);
      held_ -= s.saved + (s.reads_input ? s.input : 0);
    } else {
      const RematSegment::Cheap& cheap = s.cheap[cheap_[begin]];
      see(s.saved - cheap.held + std::max(s.forward, s.backward));
      seconds_ += cheap.time;
      held_ -= s.input + cheap.held;
    }
  }

  const std::vector<RematSegment>& chain_;
  const std::vector<Hold>& holds_;
  const std::vector<std::size_t>& cheap_;
  const std::vector<bool>& cut_;
  std::uint64_t held_ = 0;
  std::uint64_t peak_ = 0;
  double seconds_ = 0;
};

// The least time for every peak that some saved set has, by trying them all.
std::map<std::uint64_t, double> all_saved_sets(const std::vector<RematSegment>& chain) {
  std::map<std::uint64_t, double> best;
  const std::size_t n = chain.size();
  std::vector<Hold> holds(n, Hold::keep);
  std::vector<std::size_t> cheap(n, 0);
  std::vector<bool> cut(n, false);
  const auto visit = [&](auto&& self, std::size_t k) -> void {
    if (k == n) {
      const RematCost cost = Simulation(chain, holds, cheap, cut).run();
      const auto [at, fresh] = best.emplace(cost.peak, cost.seconds);
      if (!fresh) at->second = std::min(at->second, cost.seconds);
      return;
    }
    holds[k] = Hold::keep;
    self(self, k + 1);
    if (chain[k].always_kept) return;
    holds[k] = Hold::expensive;
    for (cheap[k] = 0; cheap[k] < chain[k].cheap.size(); ++cheap[k]) self(self, k + 1);
    holds[k] = Hold::input;
    cut[k] = false;
    self(self, k + 1);
    if (k > 0 && holds[k - 1] == Hold::input) {
      cut[k] = true;
      self(self, k + 1);
      cut[k] = false;
    }
    holds[k] = Hold::keep;
  };
  visit(visit, 0);
  double least = std::numeric_limits<double>::infinity();
  for (auto& [peak, seconds] : best) seconds = least = std::min(least, seconds);
  return best;
}

void expect_optimal(const std::vector<RematSegment>& chain) {
  const std::map<std::uint64_t, double> best = all_saved_sets(chain);
  EXPECT_EQ(smallest_peak(chain), best.begin()->first);
  EXPECT_FALSE(best.begin()->first > 0 && fastest_within(chain, best.begin()->first - 1));
  for (auto at = best.begin(); at != best.end(); ++at) {
    // The least budget with this answer and the largest.
    const auto next = std::next(at);
    for (const std::uint64_t budget : {at->first, next == best.end() ? at->first + 100 : next->first - 1}) {
      const auto plan = fastest_within(chain, budget);
      ASSERT_TRUE(plan);
      const RematCost cost = cost_of(chain, *plan);
      EXPECT_LE(cost.peak, budget);
      EXPECT_EQ(cost.seconds, at->second) << plan->str() << " within " << budget;
    }
  }
}

TEST(RematChain, EqualsTryingAllSavedSets) {
  std::mt19937 random(1);
  for (std::size_t n = 1; n <= 10; ++n)
    for (int i = 0; i < 20; ++i) expect_optimal(random_chain(random, n, 0));
  for (int i = 0; i < 30; ++i) expect_optimal(random_chain(random, 12, 0));
}

TEST(RematChain, AndWithCheapValues) {
  std::mt19937 random(2);
  for (std::size_t n = 1; n <= 8; ++n)
    for (int i = 0; i < 20; ++i) expect_optimal(random_chain(random, n, 1));
}

TEST(RematChain, AndWithSeveralSetsOfCheapValues) {
  std::mt19937 random(3);
  for (std::size_t n = 1; n <= 6; ++n)
    for (int i = 0; i < 20; ++i) expect_optimal(random_chain(random, n, 4));
}

TEST(RematChain, MoreSetsAreNeverWorseAndOftenBetter) {
  std::mt19937 random(4);
  int better = 0;
  for (int i = 0; i < 40; ++i) {
    const std::vector<RematSegment> chain = random_chain(random, 12, 4);
    std::vector<RematSegment> coarse = chain;
    for (RematSegment& s : coarse) s.cheap.resize(std::min<std::size_t>(1, s.cheap.size()));
    std::uint64_t high = 0;
    for (const RematSegment& s : chain) high += s.input + s.saved;
    for (std::uint64_t budget = 0; budget <= high; ++budget) {
      const auto all_or_nothing = fastest_within(coarse, budget);
      if (!all_or_nothing) continue;
      const auto plan = fastest_within(chain, budget);
      ASSERT_TRUE(plan);
      const double seconds = cost_of(chain, *plan).seconds;
      const double before = cost_of(coarse, *all_or_nothing).seconds;
      EXPECT_LE(seconds, before) << budget;
      better += seconds < before ? 1 : 0;
    }
  }
  EXPECT_GT(better, 0);
}

// The classical chain: equal segments whose inner values are as large as what passes between them.
TEST(RematChain, EqualSegmentsGrowWithTheRoot) {
  for (const std::size_t n : {16, 64, 256}) {
    std::vector<RematSegment> chain(n, {.input = 1, .saved = 1, .cheap = {}, .last_time = 1, .inner_time = 1});
    chain.front().input = 0;
    chain.back().always_kept = true;
    const double root = std::sqrt(static_cast<double>(n));
    // Groups of g segments hold n/g inputs and make 2g tensors again.
    EXPECT_LE(static_cast<double>(smallest_peak(chain)), 3 * root) << n;
    EXPECT_GE(static_cast<double>(smallest_peak(chain)), root) << n;
  }
}

TEST(RematPlanText, GoesThereAndBack) {
  const RematPlan plan{
      {{2, Hold::keep}, {4, Hold::input}, {3, Hold::input}, {1, Hold::expensive}, {1, Hold::expensive, {0, 3}}}};
  EXPECT_EQ(plan.str(), "keep 2, input 4+3, expensive 1+1:0.3");
  EXPECT_EQ(RematPlan::parse(plan.str()), plan);
  for (const char* bad : {"", "keep", "keep 0", "keep x", "hold 2", "keep 2,,input 1", "keep 2+",
                          "expensive 1:", "expensive 1:x", "expensive 1:-1", "input 1:0"})
    EXPECT_ANY_THROW(RematPlan::parse(bad)) << bad;
}

}  // namespace
}  // namespace trireme::planner
