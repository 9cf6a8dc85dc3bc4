#include "trireme/train/room.h"

#include <gtest/gtest.h>

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
