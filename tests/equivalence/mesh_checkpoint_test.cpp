// A checkpoint saved on one mesh goes on on any other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "equivalence/training.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/convert.h"

namespace trireme::testing {
namespace {

struct Way {
  std::string mesh;
  int zero = 0;
  bool sequence = false;
  std::string pipeline = "1f1b";
  bool one_update = false;  // of a step: a micro-batch of all rows
  bool asynchronous() const { return pipeline.starts_with("pipedream"); }
};

// Models of images share these by height and width, and their channels; the others their matrices.
const std::vector<Way>& spatial_ways() {
  static const std::vector<Way> all = {
      {"dp=1"},
      {"h=2"},
      {"tp=2"},
      {"dp=2,h=2", 1},
      {"h=2,w=2"},
      {"tp=2,w=3"},
      {"h=3,dp=2", 2},
      {"dp=2,tp=2,w=2", 3},
      {"pp=2"},
      {"pp=2,h=2"},
      {"pp=3", 0, false, "gpipe"},
      {"w=2,pp=2,dp=2", 1, false, "zero-bubble"},
      {"pp=2,tp=2,h=2", 0, false, "sequential"},
      {"pp=2,dp=2", 3, false, "interleaved:2"},
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
      {"pp=3"},
      {"pp=2,dp=2", 1, false, "zero-bubble:auto"},
      {"pp=2", 0, false, "interleaved:3"},
      {"tp=4,pp=2", 0, true, "gpipe"},
  };
  return all;
}

// Asynchronous pipelines, drained: their tables are not tied across stages. Of one that updates after every
// micro-batch, a step of one micro-batch is what others do too.
const std::vector<Way>& asynchronous_ways() {
  static const std::vector<Way> all = {
      {"pp=2", 0, false, "pipedream-2bw"},
      {"pp=3", 0, false, "pipedream", true},
      {"pp=2,dp=2", 1, false, "pipedream-2bw"},
  };
  return all;
}

std::vector<Way> ways_of(const std::string& name) {
  std::vector<Way> ways = name == "convnet" ? spatial_ways() : matrix_ways();
  if (name == "mlp" || name == "llama") ways.insert(ways.end(), asynchronous_ways().begin(), asynchronous_ways().end());
  return ways;
}

// A vocabulary of 61 and a feed-forward width of 50 are padded over four ranks, which share the two key heads.
train::Config model(const std::string& name) {
  train::Config plain = small_model(name);
  plain.train.batch = 12;
  plain.train.micro_batch = 6;
  if (name != "convnet") plain.model.layers = 4;
  if (!reads_images(plain)) {
    plain.model.context = 20;
    plain.model.ffn = 50;
    train::resolve_model(plain, plain.model.vocab);
  }
  return plain;
}

train::Config on(const train::Config& plain, const Way& way) {
  train::Config c = over_mesh(plain, way.mesh, way.zero);
  c.parallel.pipeline = way.pipeline;
  c.parallel.sequence = way.sequence && !reads_images(c);
  if (way.one_update) c.train.micro_batch = c.train.batch / ir::parse_mesh(way.mesh).size_of("dp");
  return c;
}

class MeshCheckpoint : public ::testing::TestWithParam<std::string> {};

// Each mesh to the next one, or all pairs if the environment asks for them.
TEST_P(MeshCheckpoint, GoesToAnyOther) {
  const std::filesystem::path run = std::filesystem::path(::testing::TempDir()) / ("mesh_checkpoint_" + GetParam());
  const bool all = std::getenv("TRIREME_STEPS") != nullptr;
  const std::vector<Way> ways = ways_of(GetParam());
  for (std::size_t i = 0; i < ways.size(); ++i)
    for (std::size_t j = 0; j < ways.size(); ++j) {
      if (i == j || (!all && j != (i + 1) % ways.size())) continue;
      SCOPED_TRACE(fmt::format("{} {} → {} {}", ways[i].mesh, ways[i].pipeline, ways[j].mesh, ways[j].pipeline));
      train::Config plain = model(GetParam());
      // Of an asynchronous pipeline each stage would clip by its own norm.
      if (ways[i].asynchronous() || ways[j].asynchronous()) plain.train.clip = 0;
      std::filesystem::remove_all(run);
      Trained first(on(plain, ways[i]));
      first.train(2);
      train::save_checkpoint(run, first.session(), on(plain, ways[i]), 2, 1);
      Trained second(on(plain, ways[j]));
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

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A state gathered from any mesh has the same bytes.
TEST_P(MeshCheckpoint, GathersTheSameBytesFromAnyMesh) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("mesh_gather_" + GetParam());
  std::filesystem::remove_all(folder);
  const train::Config plain = model(GetParam());
  Trained one(plain);
  one.train(1);
  train::save_checkpoint(folder / "one", one.session(), plain, 1, 1);
  for (const Way& way : ways_of(GetParam())) {
    SCOPED_TRACE(fmt::format("{} {}", way.mesh, way.pipeline));
    const train::Config config = on(plain, way);
    Trained many(config);
    train::load_checkpoint(folder / "one", 1, many.session());
    expect_same_state(one, many);
    std::filesystem::remove_all(folder / "many");
    train::save_checkpoint(folder / "many", many.session(), config, 1, 1);
    Trained again(plain);
    train::load_checkpoint(folder / "many", 1, again.session());
    expect_same_state(one, again);
  }
  std::filesystem::remove_all(folder);
}

// What a mesh has of a state is saved such that an export has the same bytes, whichever mesh it was.
TEST_P(MeshCheckpoint, ExportsTheSameFileFromAnyMesh) {
  if (reads_images(model(GetParam()))) GTEST_SKIP() << "models of images have no Hugging Face folder";
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("mesh_export_" + GetParam());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const train::Config plain = model(GetParam());
  Trained one(plain);
  one.train(1);
  train::save_checkpoint(folder / "one", one.session(), plain, 1, 1);
  std::string expected;
  for (const Way& way : ways_of(GetParam())) {
    SCOPED_TRACE(fmt::format("{} {}", way.mesh, way.pipeline));
    const train::Config config = on(plain, way);
    Trained many(config);
    train::load_checkpoint(folder / "one", 1, many.session());
    const std::filesystem::path run = folder / "run";
    std::filesystem::remove_all(run);
    train::save_checkpoint(run, many.session(), config, 1, 1);
    std::ofstream(run / "config.toml") << train::to_toml(config);
    train::export_huggingface(run, folder / "exported", {.overwrite = true});
    const std::string file = contents(folder / "exported" / "model.safetensors");
    if (expected.empty()) expected = file;
    EXPECT_GT(file.size(), 1000U);
    EXPECT_TRUE(file == expected) << "the file differs";
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, MeshCheckpoint, ::testing::Values("mlp", "gpt2", "llama", "convnet"));

}  // namespace
}  // namespace trireme::testing
