// What a rank does with its memory and its time changes no bit of what the same ranks compute: plans drawn at random.
// That the ranks train like one plain rank is shown by random_plans_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "equivalence/training.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

struct Drawn {
  train::Config plain;  // the same arithmetic without the techniques
  train::Config config;
  int ranks = 1;
  std::string text;
};

Drawn draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<std::string>& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random)];
  };
  Drawn d;
  const std::string model = one_of(small_models());
  d.plain = wider_model(model);
  d.plain.model.layers = std::max<std::int64_t>(d.plain.model.layers, model == "mlp" ? 5 : 0);
  d.plain.model.dropout = one_of({"0", "0.2"}) == "0" ? 0 : 0.2;
  d.plain.train.precision = one_of({"f32", "bf16", "fp16"});
  d.plain.train.loss_scale = 1;  // no step may be skipped here
  d.plain.train.optimizer = one_of({"adamw", "sgd"});
  d.plain.train.micro_batch = d.plain.train.batch / std::stoll(one_of({"1", "2", "4"}));
  d.config = d.plain;
  d.config.memory.remat = one_of({"none", "every:2", "sqrt", "selective", "optimal", "full"});
  if (model == "mlp" && d.config.memory.remat != train::Remat::none) d.config.memory.remat = "every:2";  // all there is
  d.config.memory.offload = one_of({"none", "activations", "optimizer", "weights", "activations,optimizer", "all"});
  d.config.memory.offload_policy = one_of({"all", "dynamic"});
  d.config.runtime.overlap_wgrad = one_of({"false", "true"}) == "true";
  d.ranks = std::stoi(one_of({"1", "1", "2"}));
  if (d.ranks > 1) {
    // The same ranks, without the other techniques.
    const std::string zero = one_of({"0", "1", "2", "3"});
    // What the model's family has presets for.
    const bool matrices = model == "mlp" || !reads_images(d.plain);
    const std::string mesh = matrices ? one_of({"dp=2", "tp=2", "dp=2,tp=2"})
                                      : one_of({"dp=2", "h=3", "w=2", "h=2,w=2", "dp=2,h=2", "w=3,dp=2", "tp=2,h=2"});
    d.plain = over_mesh(d.plain, mesh, std::stoi(zero));
    d.plain.parallel.sequence = !reads_images(d.plain) && mesh != "dp=2" && one_of({"true", "false"}) == "true";
    d.ranks = ir::parse_mesh(mesh).ranks();
    d.plain.parallel.overlap = false;
    d.config.train.micro_batch = d.plain.train.micro_batch;
    d.config.parallel = d.plain.parallel;
    d.config.parallel.overlap = one_of({"true", "false"}) == "true";
    d.config.parallel.bucket.count = std::stoull(one_of({"2000", "26214400"}));
  }
  d.text = fmt::format(
      "{} sequence {} zero {}, {} {} {} micro-batch {} dropout {} remat {} offload {} ({}) overlapped gradients {}",
      d.config.parallel.mesh, d.config.parallel.sequence, d.config.parallel.zero, model, d.plain.train.precision,
      d.plain.train.optimizer, d.plain.train.micro_batch, d.plain.model.dropout, d.config.memory.remat,
      d.config.memory.offload, d.config.memory.offload_policy, *d.config.runtime.overlap_wgrad);
  return d;
}

std::unique_ptr<Trained> trained(const train::Config& config) {
  return std::make_unique<Trained>(config, Setup{.threads = 2});
}

TEST(Composition, RandomTechniquesTrainAsTheSameRanksWithout) {
  constexpr std::uint32_t kDraws = 48;
  std::vector<std::string> refused;
  int moved = 0;
  for (std::uint32_t seed = 1; seed <= kDraws; ++seed) {
    const Drawn d = draw(seed);
    SCOPED_TRACE(d.text);
    Trained plain(d.plain, {.threads = 2});
    std::unique_ptr<Trained> planned;
    try {
      train::check(d.config);
      planned = trained(d.config);
    } catch (const Error& e) {
      // Some policies have nothing to do for some models, and say so before anything runs.
      ASSERT_EQ(e.kind(), Error::Kind::request) << e.what();
      EXPECT_NE(e.message().find("nearest"), std::string::npos) << "says what works: " << e.what();
      refused.push_back(fmt::format("{}\n    {}", d.text, e.what()));
      continue;
    }
    plain.train(3);
    planned->train(3);
    EXPECT_EQ(planned->session().highest_offset(), planned->compiled().arena_bytes());
    if (d.plain.train.precision == train::Precision::f32)
      expect_same_bits(plain, *planned);
    else
      expect_equal_training(plain, *planned, 1e-6);
    moved += planned->compiled().tier_bytes(2) > 0 ? 1 : 0;
  }
  for (const std::string& why : refused) fmt::print("refused: {}\n", why);
  EXPECT_LT(refused.size() * 10, kDraws) << "most of what is drawn must be shown";
  EXPECT_GE(moved, 16);
}

}  // namespace
}  // namespace trireme::testing
