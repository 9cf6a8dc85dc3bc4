// A rank that throws ends the others within moments, with its reason, whatever they are doing; and nothing of it stays.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

// A rank of every axis of a mesh: replicas, stages, shards of matrices and of images.
struct Case {
  const char* model;
  const char* mesh;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{"gpt2", "dp=4"},   {"gpt2", "pp=2"},        {"llama", "tp=2"},
                                        {"convnet", "h=2"}, {"convnet", "dp=2,w=2"}, {"gpt2", "pp=2,dp=2,tp=2"}};
  return all;
}

TEST(RankFailure, EndsAllWithItsReasonAndTheRunGoesOn) {
  const char* asked = std::getenv("TRIREME_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : static_cast<int>(cases().size());
  const std::filesystem::path run =
      std::filesystem::temp_directory_path() / fmt::format("trireme-rank-failure-{}", ::getpid());
  std::filesystem::create_directories(run);
  std::mt19937 random(7);
  double longest = 0;
  for (int k = 0; k < kills; ++k) {
    SCOPED_TRACE(fmt::format("kill {}", k));
    const Case& c = cases()[static_cast<std::size_t>(k) % cases().size()];
    SCOPED_TRACE(fmt::format("{} on {}", c.model, c.mesh));
    const int ranks = ir::parse_mesh(c.mesh).ranks();
    const int zero = std::uniform_int_distribution<int>(0, 3)(random);
    train::Config config = small_model(c.model);
    config.train.batch = 60;
    config.train.micro_batch = 20;
    if (reads_images(config)) config.model.image = 16;
    config = over_mesh(config, c.mesh, ir::parse_mesh(c.mesh).size_of("dp") > 1 ? zero : 0);
    config.parallel.bucket.count = 2048;  // many collectives to be caught in
    Trained undisturbed(config);
    undisturbed.train(4);
    Trained dying(config);
    dying.train(2);
    std::filesystem::remove_all(run);
    train::save_checkpoint(run, dying.session(), config, 2, 1);
    const int victim = std::uniform_int_distribution<int>(0, ranks - 1)(random);
    const auto delay = std::chrono::microseconds(std::uniform_int_distribution<int>(0, 4000)(random));
    const data::Batch batch = batch_of(config, 2);
    std::chrono::steady_clock::time_point thrown;
    std::string message;
    try {
      dying.session().each([&](train::Rank& rank) {
        if (rank.number() == victim) {
          std::this_thread::sleep_for(delay);
          thrown = std::chrono::steady_clock::now();
          fail("the power went out");
        }
        rank.step(batch, 2, train::learning_rate(config.train, 2), config.train.seed);
      });
    } catch (const Error& e) {
      message = e.message();
    }
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - thrown).count());
    EXPECT_EQ(message, fmt::format("rank {}: the power went out", victim));
    // What was saved before is all there is to lose.
    Trained again(config);
    train::load_checkpoint(run, 2, again.session());
    again.skip_to(2);
    again.train(2);
    expect_same_state(undisturbed, again);
  }
  std::filesystem::remove_all(run);
  EXPECT_LT(longest, 2);
  std::printf("%d ranks died; the others had stopped within %.3f s\n", kills, longest);
}

}  // namespace
}  // namespace trireme::testing
