#include "trireme/train/room.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/planner/trials.h"
#include "trireme/train/outside.h"
#include "trireme/train/what_if.h"

namespace trireme::train {
namespace {

class Room : public ::testing::Test {
 protected:
  explicit Room(const std::string& mesh = "dp=2") {
    config_.model.family = "mlp";
    config_.model.layers = 4;
    config_.model.width = 16;
    config_.model.image = 8;
    config_.train.batch = 144;
    config_.parallel.mesh = mesh;
    resolve_model(config_, 0);
    compiled_ = compile(config_, registry_, {});
  }
  bool fits(const Site& site) const { return shortfalls(config_, registry_, compiled_, site).empty(); }

  Config config_;
  Registry registry_;
  Compiled compiled_;
};

TEST_F(Room, ThreadsOfOneProcessShareItsMemory) {
  const std::size_t arena = compiled_.arena_bytes();
  EXPECT_TRUE(fits({.memory = 2 * arena}));
  EXPECT_FALSE(fits({.memory = 2 * arena - 1}));
}

TEST_F(Room, ProcessesOfOneMachineShareItsMemory) {
  const std::size_t arena = compiled_.arena_bytes();
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 1, .memory = arena}));
  EXPECT_FALSE(fits({.alone = false, .local_ranks = 2, .memory = 2 * arena - 1}));
}

TEST_F(Room, WhatIsOutsideThePlanCountsOnceForEachProcess) {
  const std::size_t arena = compiled_.arena_bytes();
  EXPECT_TRUE(fits({.memory = 2 * arena + 700, .outside = 700}));
  EXPECT_FALSE(fits({.memory = 2 * arena + 699, .outside = 700}));
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 2, .memory = 2 * arena + 1400, .outside = 700}));
  EXPECT_FALSE(fits({.alone = false, .local_ranks = 2, .memory = 2 * arena + 1399, .outside = 700}));
}

// What saves memory of the workers leaves a server as large as it was.
TEST_F(Room, WhatALimitProposesNamesServersThatAreTooLarge) {
  Config config = config_;
  config.data.images = "synthetic";
  config.parallel.server = "sync";
  config.memory.limit.count = 20000;
  const Compiled compiled = compile(config, registry_, {});
  const std::vector<std::string> found = shortfalls(config, registry_, compiled, {.memory = std::size_t{1} << 40});
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("memory.limit"), std::string::npos) << found.front();
  EXPECT_NE(found.front().find("server 0 needs"), std::string::npos) << found.front();
  const auto at = found.front().find("try parallel.servers = ");
  ASSERT_NE(at, std::string::npos) << found.front();
  const auto largest_server = [](const Compiled& of) {
    std::size_t most = 0;
    for (const Role& role : of.roles)
      if (!role.takes_rows()) most = std::max(most, role.arena_bytes);
    return most;
  };
  // With so many their mean fits; the largest has what one tensor more or less makes.
  config.parallel.servers = std::stoll(found.front().substr(at + 23));
  EXPECT_LT(largest_server(compile(config, registry_, {})), largest_server(compiled) / 2);
}

// Of a GPU, by launches that have scratch: the operands of the largest, and results to compare.
TEST_F(Room, SearchOfAlgorithmsHasRoomForTheLargestLaunch) {
  const program::Program& step = compiled_.roles.front().program("step");
  std::uint64_t largest = 0;
  for (const program::Instruction& i : step.instructions) {
    if (i.kind != program::Instruction::Kind::launch || i.workspace.buffer == program::kNone) continue;
    std::uint64_t bytes = i.workspace.type.bytes();
    for (const program::Operand& o : i.inputs) bytes += o.type.bytes();
    for (const program::Operand& o : i.outputs) bytes += 2 * o.type.bytes();
    largest = std::max(largest, bytes);
  }
  ASSERT_GT(largest, 0U);
  const std::uint64_t flush = std::uint64_t{256} << 20;
  EXPECT_GE(search_bytes(step), flush + largest);
  EXPECT_LE(search_bytes(step), flush + 5 * largest + 64 * 1024);
  program::Program nothing = step;
  for (program::Instruction& i : nothing.instructions) i.workspace.buffer = program::kNone;
  EXPECT_EQ(search_bytes(nothing), 0U);
}

// Which savings a refusal has tried follows from the model, not from how fast they were compiled: the last of the list,
// as many as have so many instructions.
TEST_F(Room, SavingsAreLeftOutByWhatTheyCompile) {
  const auto tried = [&](double instructions, int threads) {
    std::vector<std::string> names;
    std::size_t begun = 0;
    const std::vector<WhatIf> all = what_if(
        config_, registry_, {.threads = threads}, compiled_, [&](std::size_t, std::size_t) { ++begun; }, instructions);
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].tried) names.push_back(fmt::format("{}", fmt::join(all[i].settings, " ")));
    EXPECT_EQ(begun, names.size());
    return names;
  };
  const auto configured = static_cast<double>(compiled_.checked.instructions);
  const std::vector<std::string> all = tried(std::numeric_limits<double>::infinity(), 2);
  ASSERT_GT(all.size(), 5U);
  // What goes furthest has as many micro-batches as these allow.
  const std::string offloaded = "memory.remat=full memory.offload=all memory.offload_policy=all";
  EXPECT_EQ(all.back(), "train.micro_batch=1 " + offloaded);
  EXPECT_EQ(tried(0, 1), std::vector<std::string>{offloaded});
  EXPECT_EQ(tried(25 * configured, 1), std::vector<std::string>{"train.micro_batch=3 " + offloaded});
  // 72 micro-batches of one row, twice; then two of half the rows, and as they are.
  EXPECT_EQ(tried(145 * configured, 1).size(), 2U);
  EXPECT_EQ(tried(146 * configured, 1).size(), 3U);
  EXPECT_EQ(tried(148 * configured, 2).size(), 5U);
  EXPECT_EQ(tried(148 * configured, 1), std::vector<std::string>(all.end() - 5, all.end()));
}

class Proposals : public ::testing::Test {
 protected:
  // Of an mlp nothing is recomputed.
  void set(const std::string& family, int zero, std::int64_t micro_batch) {
    config_ = {};
    config_.model.family = family;
    config_.model.layers = family == "mlp" ? 4 : 2;
    config_.model.width = 32;
    config_.model.heads = 2;
    config_.model.context = 8;
    config_.model.image = 8;
    if (family == "mlp") config_.data.images = "synthetic";
    config_.train.batch = 12;
    config_.train.micro_batch = micro_batch;
    config_.parallel.mesh = "dp=2";
    config_.parallel.zero = zero;
    resolve_model(config_, family == "mlp" ? 0 : 61);
    configured_ = compile(config_, registry_, {});
    known_ = what_if(config_, registry_, {}, configured_);
  }
  // With micro-batches of every size, recomputed in every way.
  std::vector<planner::Tried> all() const {
    std::vector<planner::Tried> results;
    for (const char* remat : {"none", "selective", "sqrt", "full"})
      for (const std::int64_t rows : {6, 3, 2, 1}) {
        Config other = config_;
        other.memory.remat = remat;
        other.train.micro_batch = rows;
        try {
          results.push_back(planner::tried(compile(other, registry_, {})));
        } catch (const Error& e) {
          EXPECT_NE(e.message().find("recomputes nothing of this model"), std::string::npos) << e.message();
        }
      }
    return results;
  }
  MicroBatchesThatFit largest(std::uint64_t limit, double instructions) const {
    return largest_micro_batches(config_, registry_, {}, configured_, limit, known_, instructions);
  }

  Config config_;
  Registry registry_;
  Compiled configured_;
  std::vector<WhatIf> known_;
};

// Smaller micro-batches may need more memory than larger ones, also than those that are configured.
TEST_F(Proposals, AreTheQuickestOfAllSizesThatFit) {
  constexpr double kNothing = std::numeric_limits<double>::infinity();
  bool larger = false;
  for (const auto& [family, zero, micro] : {std::tuple("mlp", 0, 6),
                                            {"mlp", 2, 6},
                                            {"mlp", 2, 2},
                                            {"gpt2", 0, 6},
                                            {"gpt2", 2, 2},
                                            {"gpt2", 3, 6},
                                            {"gpt2", 3, 2}}) {
    set(family, zero, micro);
    const planner::Tried as_configured = planner::tried(configured_);
    const std::vector<planner::Tried> every = all();
    std::set<std::size_t> limits;
    for (const planner::Tried& one : every)
      if (one.peak < as_configured.peak) limits.insert(one.peak);
    const std::size_t step = family == std::string("mlp") ? 1 : 3;
    for (auto limit = limits.begin(); limit != limits.end();) {
      SCOPED_TRACE(fmt::format("{}, ZeRO-{}, micro-batches of {}, {} B", family, zero, micro, *limit));
      double quickest = kNothing, found = kNothing;
      for (const planner::Tried& one : every)
        if (one.peak <= *limit) quickest = std::min(quickest, one.seconds / as_configured.seconds);
      const MicroBatchesThatFit more = largest(*limit, kNothing);
      EXPECT_TRUE(more.all_tried);
      for (const WhatIf& s : known_)
        if (s.refused.empty() && !s.changes_numbers && s.peak <= *limit) found = std::min(found, s.time);
      for (const WhatIf& s : more.found) {
        EXPECT_LE(s.peak, *limit);
        found = std::min(found, s.time);
        larger = larger || (micro < 6 && s.settings.front() == "train.micro_batch=6");
      }
      EXPECT_LE(found, quickest * (1 + 1e-9));
      for (std::size_t i = 0; i < step && limit != limits.end(); ++i) ++limit;
    }
  }
  EXPECT_TRUE(larger) << "no plan needs less with larger micro-batches";
}

// Where no saving alone is enough, and what goes furthest is refused or larger, some of them together may be.
TEST_F(Proposals, CombineSavings) {
  const auto way = [&](std::uint64_t limit, const std::vector<std::string>& settings) {
    config_ = {};
    config_.model.width = 32;
    config_.model.heads = 4;
    config_.model.context = 16;
    config_.train.batch = 24;
    config_.memory.limit.count = limit;
    for (const std::string& setting : settings) apply_setting(config_, setting, registry_.models);
    resolve_model(config_, 256);
    configured_ = compile(config_, registry_, {});
    const std::vector<std::string> found = shortfalls(config_, registry_, configured_, {});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found.front().find("it fits in "), std::string::npos) << found.front();
    // What is proposed does.
    const std::size_t with = found.front().find(" with --");
    ASSERT_NE(with, std::string::npos) << found.front();
    for (const std::string& setting : split(found.front().substr(with + 8), ' '))
      apply_setting(config_, setting.substr(setting.starts_with("--") ? 2 : 0), registry_.models);
    EXPECT_FALSE(exceeds_limit(config_, compile(config_, registry_, {})));
  };
  way(275'000, {"model.family=llama", "model.layers=2", "model.kv_heads=1", "model.tie_embeddings=false",
                "parallel.mesh=pp=4,tp=2", "parallel.pipeline=gpipe", "parallel.overlap=false", "memory.remat=sqrt"});
}

TEST_F(Proposals, SayThatNotAllWereTried) {
  set("gpt2", 0, 6);
  std::size_t limit = planner::tried(configured_).peak;
  for (const WhatIf& s : known_)
    if (s.refused.empty() && !s.changes_numbers) limit = std::min(limit, s.peak);
  EXPECT_TRUE(largest(limit, 1e9).all_tried);
  const MicroBatchesThatFit none = largest(limit, 0);
  EXPECT_FALSE(none.all_tried);
  EXPECT_TRUE(none.found.empty());
}

// Of a GPU's run, what waits in the host's memory counts for every rank.
TEST_F(Room, TheHostTierCountsAllRanks) {
  compiled_.plan.device = device::Kind::cuda;
  for (Role& role : compiled_.roles) {
    role.tier_bytes[program::kHostTier] = 1000;
    role.host_staging = 500;
  }
  EXPECT_TRUE(fits({.memory = 3000}));
  EXPECT_FALSE(fits({.memory = 2999}));
}

// A stand-in for messages of more than 2 GiB over MPI: known when the run is planned.
TEST_F(Room, MessagesThatMpiCannotCountAreFoundBeforeTheRun) {
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 2}));
  EXPECT_FALSE(fits({.alone = false, .local_ranks = 2, .largest_message = 100}));
  EXPECT_TRUE(fits({.largest_message = 100})) << "threads exchange anything";
}

// Collectives, messages between stages, and what servers are sent and send.
TEST_F(Room, MessagesOfEveryKindAreLimited) {
  using Kind = program::Instruction::Kind;
  struct Case {
    Kind kind;
    const char* mesh;
    const char* server;
  };
  for (const Case& c :
       {Case{Kind::collective, "dp=2", "none"}, Case{Kind::send, "pp=2", "none"}, Case{Kind::receive, "pp=2", "none"},
        Case{Kind::push, "dp=2", "sync"}, Case{Kind::pull, "dp=2", "sync"}}) {
    SCOPED_TRACE(static_cast<int>(c.kind));
    config_.parallel.mesh = c.mesh;
    config_.parallel.server = c.server;
    compiled_ = compile(config_, registry_, {});
    for (Role& role : compiled_.roles)
      for (program::Program& p : role.programs)
        std::erase_if(p.instructions, [&](const program::Instruction& i) { return i.kind != c.kind; });
    EXPECT_FALSE(fits({.alone = false, .local_ranks = 3, .largest_message = 10}));
  }
}

TEST_F(Room, OnlyMpiLimitsMessages) {
  config_.runtime.transport = Transport::nccl;
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 2, .largest_message = 100}));
}

// Each rank gives a shard, and what is exchanged is the whole.
TEST_F(Room, AGatherCountsAsWhatItMakes) {
  config_.parallel.zero = 3;
  compiled_ = compile(config_, registry_, {});
  const auto bytes = [](const std::vector<program::Operand>& operands) {
    return std::transform_reduce(operands.begin(), operands.end(), std::uint64_t{0}, std::plus<>(),
                                 [](const program::Operand& o) { return o.type.bytes(); });
  };
  std::uint64_t made = 0;
  for (Role& role : compiled_.roles)
    for (program::Program& p : role.programs) {
      // The gathers alone: gradients are scattered, as large.
      std::erase_if(p.instructions, [&](const program::Instruction& i) {
        return !i.communicates() || bytes(i.inputs) >= bytes(i.outputs);
      });
      for (const program::Instruction& i : p.instructions) made = std::max(made, bytes(i.outputs));
    }
  ASSERT_GT(made, 0U);
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 2, .largest_message = made}));
  EXPECT_FALSE(fits({.alone = false, .local_ranks = 2, .largest_message = made - 1}));
}

class ManyRanks : public Room {
 protected:
  ManyRanks() : Room("dp=72") {}
};

// The limit is of threads alone.
TEST_F(ManyRanks, AreProcesses) {
  EXPECT_FALSE(fits({}));
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 8}));
}

class StagedRoom : public Room {
 protected:
  StagedRoom() : Room("pp=2") {}
};

// Roles differ: a machine has room for those that are on it.
TEST_F(StagedRoom, AMachineHoldsItsOwnRanks) {
  compiled_.roles[0].arena_bytes = 5000;
  compiled_.roles[1].arena_bytes = 9000;
  EXPECT_TRUE(fits({.alone = false, .local_ranks = 1, .rank = 0, .memory = 5000}));
  EXPECT_FALSE(fits({.alone = false, .local_ranks = 1, .rank = 1, .memory = 5000}));
}

}  // namespace
}  // namespace trireme::train
