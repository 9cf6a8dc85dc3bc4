// The algorithms that a run computes by are in its folder and in its checkpoints, and come back from there. A kernel
// that asks for one when it is prepared stands for those of a GPU's libraries.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "support/folder.h"
#include "trireme/device/algorithm_cache.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

class RecordedAlgorithms : public ::testing::Test {
 protected:
  // Products are chosen by this.
  static constexpr const char* kKey = "8x8";

  RecordedAlgorithms() {
    setenv("XDG_CACHE_HOME", "/proc/none", 1);  // no cache but this one's
    cache_ = std::make_unique<device::AlgorithmCache>("gemm");
    ir::KernelDef& kernel = registry_.ops.edit("matmul").kernels.at(device::Kind::cpu);
    kernel.prepare = [this, prepare = kernel.prepare](const ir::KernelSpec& spec) {
      found_ = spec.algorithms->find(*cache_, kKey).value_or("");
      if (found_.empty()) {
        spec.algorithms->keep(*cache_, kKey, "measured");
        spec.algorithms->note_measured(0.5);
      }
      return prepare(spec);
    };
  }
  ~RecordedAlgorithms() override { unsetenv("XDG_CACHE_HOME"); }

  static device::ChosenAlgorithm chosen(const std::string& value) { return {"gemm", kKey, value}; }

  // Gives what it says; `found_` is then what its kernels found.
  std::string run(RunMode mode, const std::string& name = "run") {
    std::string said;
    Config config = parse_config(
        "", "test",
        std::vector<std::string>{"model.family=mlp", "model.layers=1", "model.width=8", "model.image=4",
                                 "data.images=synthetic", "train.batch=2", "train.steps=" + std::to_string(++steps_),
                                 "train.eval_every=0", "output.dir=" + folder_.path(name)});
    TrainerOptions options{.mode = mode};
    options.log = [&](LogLevel, const std::string& text) { said += text + "\n"; };
    Trainer trainer(config, registry_, options);
    trainer.start();
    trainer.run();
    return said;
  }
  std::string recorded(const std::string& name = "run") const {
    std::ifstream in(folder_.path(name + "/algorithms.txt"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void record(const std::string& value) {
    const device::ChosenAlgorithm one = chosen(value);
    folder_.write("run/algorithms.txt", device::algorithms_text({&one, 1}));
  }
  static std::string text(const std::string& value) {
    const device::ChosenAlgorithm one = chosen(value);
    return device::algorithms_text({&one, 1});
  }

  test::Folder folder_;
  Registry registry_;
  std::unique_ptr<device::AlgorithmCache> cache_;
  std::string found_;
  int steps_ = 0;
};

TEST_F(RecordedAlgorithms, AreInTheFolderAndTheCheckpointAndComeBack) {
  EXPECT_NE(run(RunMode::fresh).find("recorded in algorithms.txt"), std::string::npos);
  EXPECT_EQ(recorded(), text("measured"));
  EXPECT_EQ(io::read_manifest(checkpoint_folder(folder_.path("run"), 1)).algorithms, text("measured"));

  // As if another machine had recorded it.
  record("of-the-folder");
  EXPECT_EQ(run(RunMode::resume).find("measured the algorithms"), std::string::npos);
  EXPECT_EQ(found_, "of-the-folder");

  const std::filesystem::path second = checkpoint_folder(folder_.path("run"), 2);
  io::CheckpointManifest manifest = io::read_manifest(second);
  manifest.algorithms = text("of-the-checkpoint");
  std::ofstream(second / io::kManifestFile, std::ios::binary) << io::manifest_text(manifest);
  std::filesystem::remove(folder_.path("run/algorithms.txt"));
  run(RunMode::resume);
  EXPECT_EQ(found_, "of-the-checkpoint");
  EXPECT_EQ(recorded(), text("of-the-checkpoint"));  // what is used is recorded again
}

TEST_F(RecordedAlgorithms, ARunThatIsStartedOverUsesThem) {
  run(RunMode::fresh);
  record("of-the-run-before");
  run(RunMode::overwrite);
  EXPECT_EQ(found_, "of-the-run-before");
}

// Runs of one process have records of their own.
TEST_F(RecordedAlgorithms, AreNotThoseOfAnotherRun) {
  run(RunMode::fresh);
  record("of-the-first-run");
  run(RunMode::resume);
  EXPECT_EQ(found_, "of-the-first-run");
  EXPECT_EQ(run(RunMode::fresh, "another").find("measured the algorithms"), std::string::npos);
  EXPECT_EQ(found_, "measured");  // as the machine's cache has it
  EXPECT_EQ(recorded("another"), text("measured"));
}

}  // namespace
}  // namespace trireme::train
