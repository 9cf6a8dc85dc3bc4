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

// A rank of every axis of a mesh: replicas, shards of matrices and of images, and every stage of a pipeline.
struct Case {
  const char* model;
  const char* mesh;
  const char* pipeline = "1f1b";
  int stage = -1;  // of the rank that dies; below zero: any rank
};
std::vector<Case> cases() {
  std::vector<Case> all = {
      {"gpt2", "dp=4"}, {"llama", "tp=2"}, {"convnet", "h=2"}, {"convnet", "dp=2,w=2"}, {"gpt2", "pp=2,dp=2,tp=2"}};
  for (const Case& c : {Case{"gpt2", "pp=2"},
                        {"mlp", "pp=4", "zero-bubble"},
                        {"llama", "dp=2,pp=3", "interleaved:2"},
                        {"llama", "pp=3", "pipedream"},
                        {"mlp", "pp=2,dp=2", "pipedream-2bw"}})
    for (int stage = 0; stage < ir::parse_mesh(c.mesh).size_of("pp"); ++stage)
      all.push_back({c.model, c.mesh, c.pipeline, stage});
  return all;
}

// Ranks of a mesh, those of one stage or all.
std::vector<int> ranks_of(const train::Compiled& compiled, int stage) {
  std::vector<int> ranks;
  for (int r = 0; r < compiled.mesh.ranks(); ++r)
    if (stage < 0 || compiled.role_of(r).places.at(ir::kPipelineAxis) == stage) ranks.push_back(r);
  return ranks;
}

TEST(RankFailure, EndsAllWithItsReasonAndTheRunGoesOn) {
  const char* asked = std::getenv("TRIREME_KILLS");
  const std::vector<Case> all = cases();
  const int kills = asked != nullptr ? std::atoi(asked) : static_cast<int>(all.size());
  const std::filesystem::path run =
      std::filesystem::temp_directory_path() / fmt::format("trireme-rank-failure-{}", ::getpid());
  std::filesystem::create_directories(run);
  std::mt19937 random(7);
  double longest = 0;
  for (int k = 0; k < kills; ++k) {
    SCOPED_TRACE(fmt::format("kill {}", k));
    const Case& c = all[static_cast<std::size_t>(k) % all.size()];
    SCOPED_TRACE(fmt::format("{} on {} {}, stage {}", c.model, c.mesh, c.pipeline, c.stage));
    const int zero = std::uniform_int_distribution<int>(0, 3)(random);
    train::Config config = small_model(c.model);
    config.train.batch = 60;
    config.train.micro_batch = 20;
    if (reads_images(config)) config.model.image = 16;
    if (c.stage >= 0) config.model.layers = 6;
    config.parallel.pipeline = c.pipeline;
    config = over_mesh(config, c.mesh, ir::parse_mesh(c.mesh).size_of("dp") > 1 ? zero : 0);
    config.parallel.bucket.count = 2048;  // many collectives to be caught in
    Trained undisturbed(config);
    undisturbed.train(2);  // an asynchronous pipeline is drained where the other one is saved
    undisturbed.train(2);
    Trained dying(config);
    dying.train(2);
    std::filesystem::remove_all(run);
    train::save_checkpoint(run, dying.session(), config, 2, 1);
    const std::vector<int> ranks = ranks_of(dying.compiled(), c.stage);
    const int victim = ranks[std::uniform_int_distribution<std::size_t>(0, ranks.size() - 1)(random)];
    const auto delay = std::chrono::microseconds(std::uniform_int_distribution<int>(0, 4000)(random));
    // An asynchronous pipeline never empties between steps: a rank dies as it asks for its third batch.
    const int last = dying.compiled().asynchronous_pipeline() ? 4 : 2;
    std::vector<data::Batch> batches;
    for (int step = 2; step <= last; ++step) batches.push_back(batch_of(config, step));
    std::chrono::steady_clock::time_point thrown;
    std::string message;
    try {
      dying.session().run({.first = 2,
                           .count = last - 1,
                           .seed = config.train.seed,
                           .lr = [&](std::int64_t step) { return train::learning_rate(config.train, step); },
                           .batch = [&](std::size_t rank, std::int64_t step) -> const data::Batch& {
                             if (static_cast<int>(rank) == victim && step == last) {
                               std::this_thread::sleep_for(delay);
                               thrown = std::chrono::steady_clock::now();
                               fail("the power went out");
                             }
                             return batches[static_cast<std::size_t>(step - 2)];
                           },
                           .done = [](std::size_t, std::int64_t, const train::StepResult&) {}});
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
