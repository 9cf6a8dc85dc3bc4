// A checkpoint saved on one mesh goes on on any other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "equivalence/training.h"
#include "trireme/train/checkpoint.h"

namespace trireme::testing {
namespace {

struct Way {
  std::string mesh;
  int zero = 0;
  bool sequence = false;
  std::string pipeline = "1f1b";
};

// Models of images share these by height and width, the others their matrices.
const std::vector<Way>& spatial_ways() {
  static const std::vector<Way> all = {
      {"dp=1"}, {"h=2"}, {"w=3"}, {"dp=2,h=2", 1}, {"h=2,w=2"}, {"dp=3", 3}, {"h=3,dp=2", 2}, {"dp=2,w=2", 3},
  };
  return all;
}

const std::vector<Way>& matrix_ways() {
  static const std::vector<Way> all = {
      {"dp=1"},
      {"dp=3", 3},
      {"tp=2"},
      {"dp=2,tp=2", 3},
      {"tp=2,dp=2", 1},
      {"tp=4", 0, true},
      {"dp=3,tp=2", 2},
      {"dp=2,tp=4", 3, true},
      {"pp=2"},
      {"pp=3,dp=2", 3, false, "gpipe"},
      {"dp=2,pp=2,tp=2", 1, true, "zero-bubble"},
      {"pp=4", 0, false, "sequential"},
      {"pp=2,dp=3", 2, false, "interleaved:2"},
      {"tp=2,pp=3", 0, false, "zero-bubble"},
  };
  return all;
}

class MeshCheckpoint : public ::testing::TestWithParam<std::string> {};

// Each mesh to the next one, or all pairs if the environment asks for them.
TEST_P(MeshCheckpoint, GoesToAnyOther) {
  const std::filesystem::path run = std::filesystem::path(::testing::TempDir()) / ("mesh_checkpoint_" + GetParam());
  train::Config plain = small_model(GetParam());
  plain.train.batch = 12;
  plain.train.micro_batch = 6;
  if (GetParam() != "convnet") plain.model.layers = 4;
  if (!reads_images(plain)) {
    plain.model.kv_heads = GetParam() == "llama" ? 4 : 0;
    plain.model.context = 20;
    plain.model.ffn = 50;  // padded over four ranks, as the vocabulary of 61 is
    train::resolve_model(plain, plain.model.vocab);
  }
  const auto config = [&](const Way& way) {
    train::Config c = over_mesh(plain, way.mesh, way.zero);
    c.parallel.pipeline = way.pipeline;
    c.parallel.sequence = way.sequence && !reads_images(c);
    return c;
  };
  const bool all = std::getenv("TRIREME_STEPS") != nullptr;
  const std::vector<Way>& ways = GetParam() == "convnet" ? spatial_ways() : matrix_ways();
  for (std::size_t i = 0; i < ways.size(); ++i)
    for (std::size_t j = 0; j < ways.size(); ++j) {
      if (i == j || (!all && j != (i + 1) % ways.size())) continue;
      SCOPED_TRACE(fmt::format("{} → {}", ways[i].mesh, ways[j].mesh));
      std::filesystem::remove_all(run);
      Trained first(config(ways[i]));
      first.train(2);
      train::save_checkpoint(run, first.session(), config(ways[i]), 2, 1);
      Trained second(config(ways[j]));
      train::load_checkpoint(run, 2, second.session());
      expect_same_state(first, second);
      second.skip_to(2);
      const auto saved = first.state();
      first.train(1);
      second.train(1);
      const double loss = first.losses().back();
      EXPECT_NEAR(second.losses().back(), loss, 5e-6 * std::abs(loss));
      expect_equal_updates(saved, first, second, 1e-3);
    }
  std::filesystem::remove_all(run);
}

INSTANTIATE_TEST_SUITE_P(Models, MeshCheckpoint, ::testing::Values("mlp", "gpt2", "llama", "convnet"));

}  // namespace
}  // namespace trireme::testing
