// The algorithms that a run computes by are in its folder and in its checkpoints, and come back from there. Choices
// made here stand for those that a GPU's libraries are measured for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "support/folder.h"
#include "trireme/device/algorithm_cache.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

class RecordedAlgorithms : public ::testing::Test {
 protected:
  RecordedAlgorithms() { setenv("XDG_CACHE_HOME", "/proc/none", 1); }  // no cache but this process's
  ~RecordedAlgorithms() override { unsetenv("XDG_CACHE_HOME"); }

  std::string run(RunMode mode) {
    std::string said;
    Config config = parse_config(
        "", "test",
        std::vector<std::string>{"model.family=mlp", "model.layers=1", "model.width=8", "model.image=4",
                                 "data.images=synthetic", "train.batch=2", "train.steps=" + std::to_string(++steps_),
                                 "train.eval_every=0", "output.dir=" + folder_.path("run")});
    TrainerOptions options{.mode = mode};
    options.log = [&](LogLevel, const std::string& text) { said += text + "\n"; };
    Trainer trainer(config, registry_, options);
    trainer.start();
    trainer.run();
    return said;
  }
  std::filesystem::path file() const { return folder_.path("run/algorithms.txt"); }
  bool file_has(const device::ChosenAlgorithm& one) const {
    std::ifstream in(file(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return has(text, one);
  }
  static bool has(const std::string& text, const device::ChosenAlgorithm& one) {
    const std::vector<device::ChosenAlgorithm> all = device::parse_algorithms(text);
    return std::find(all.begin(), all.end(), one) != all.end();
  }

  test::Folder folder_;
  Registry registry_;
  int steps_ = 0;
};

TEST_F(RecordedAlgorithms, AreInTheFolderAndTheCheckpointAndComeBack) {
  const device::ChosenAlgorithm own{"of-a-first-run", "8x8", "a"};
  device::AlgorithmCache(own.cache).keep(own.key, own.value);
  device::note_measured(0.5);
  EXPECT_NE(run(RunMode::fresh).find("recorded in algorithms.txt"), std::string::npos);
  EXPECT_TRUE(file_has(own));
  const std::filesystem::path newest = checkpoint_folder(folder_.path("run"), 1);
  EXPECT_TRUE(has(io::read_manifest(newest).algorithms, own));

  // As if other processes had recorded these.
  const device::ChosenAlgorithm in_folder{"of-the-folder", "8x8", "b"};
  folder_.write("run/algorithms.txt", device::algorithms_text({&in_folder, 1}));
  run(RunMode::resume);
  EXPECT_EQ(device::AlgorithmCache(in_folder.cache).find(in_folder.key), in_folder.value);

  const device::ChosenAlgorithm in_checkpoint{"of-the-checkpoint", "8x8", "c"};
  const std::filesystem::path second = checkpoint_folder(folder_.path("run"), 2);
  io::CheckpointManifest manifest = io::read_manifest(second);
  manifest.algorithms = device::algorithms_text({&in_checkpoint, 1});
  std::ofstream(second / io::kManifestFile, std::ios::binary) << io::manifest_text(manifest);
  std::filesystem::remove(file());
  run(RunMode::resume);
  EXPECT_EQ(device::AlgorithmCache(in_checkpoint.cache).find(in_checkpoint.key), in_checkpoint.value);
  // What is used is recorded again.
  run(RunMode::resume);
  EXPECT_TRUE(file_has(in_checkpoint));
  EXPECT_TRUE(file_has(in_folder));
}

TEST_F(RecordedAlgorithms, ARunThatIsStartedOverUsesThem) {
  run(RunMode::fresh);
  const device::ChosenAlgorithm before{"of-a-run-before", "8x8", "d"};
  folder_.write("run/algorithms.txt", device::algorithms_text({&before, 1}));
  run(RunMode::overwrite);
  EXPECT_EQ(device::AlgorithmCache(before.cache).find(before.key), before.value);
}

}  // namespace
}  // namespace trireme::train
