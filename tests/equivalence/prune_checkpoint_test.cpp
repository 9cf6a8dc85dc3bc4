// Checkpoints of models that are pruned: what they hold, and how large they are.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "equivalence/pruned.h"
#include "trireme/train/checkpoint.h"

namespace trireme::testing {
namespace {

// Of the tensors in all files, without their headers.
std::uintmax_t bytes_in(const std::filesystem::path& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::uint64_t header = 0;
    std::ifstream(entry.path(), std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
    bytes += entry.file_size() - sizeof header - header;
  }
  return bytes;
}

// Weights and their moments are stored without zeros, and masks in a bit for each element: before anything is pruned a
// checkpoint is a thirty-second of its masked weights larger than a dense one, and smaller afterwards.
TEST(Prune, CheckpointsDoNotGrow) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trireme-pruned-{}", ::getpid());
  for (const char* mesh : {"dp=1", "dp=2", "tp=2"}) {
    SCOPED_TRACE(mesh);
    train::Config config = pruned("gpt2", "magnitude", "unstructured", "oneshot", 4);
    config.prune.sparsity = 0.8;
    train::Config dense = config;
    dense.prune = {};
    const int zero = std::string(mesh) == "dp=2" ? 1 : 0;
    const auto saved = [&](const train::Config& of, int steps) {
      Trained run(over_mesh(of, mesh, zero));
      run.train(steps);
      train::save_checkpoint(folder, run.session(), of, steps, 1);
      const std::uintmax_t bytes = bytes_in(folder);
      // What is read is what was, to the sign of a zero.
      Trained again(over_mesh(of, mesh, zero));
      train::load_checkpoint(folder, steps, again.session());
      again.session().refresh_copies();
      const States a = run.state(), b = again.state();
      for (const auto& [name, values] : a)
        EXPECT_EQ(std::memcmp(values.data(), b.at(name).data(), values.size() * sizeof(float)), 0) << name;
      std::filesystem::remove_all(folder);
      return bytes;
    };
    const std::uintmax_t plain = saved(dense, 4);
    Trained one(config);
    std::size_t weights = 0, all = 0;
    const States state = one.state();
    for (const std::string& name : masked(state)) weights += state.at(name).size();
    for (const auto& [name, values] : state)
      if (!name.ends_with("/mask")) all += values.size() * sizeof(float);
    constexpr std::uintmax_t kRounded = 256;  // whole bytes of each slice, and the number of prunings
    EXPECT_LE(saved(config, 1), plain + weights / 8 + kRounded);
    // A fifth of the weights and of two moments, a bit or two for each, and the masks.
    const std::uintmax_t most = all - 12 * weights + 12 * weights / 5 + 7 * weights / 8 + kRounded;
    const std::uintmax_t after = saved(config, 4);
    EXPECT_LT(after, plain);
    EXPECT_LE(after, most);
  }
}

// Masks are part of a checkpoint: what goes on from one ends as the undisturbed run.
TEST(Prune, GoesOnFromACheckpoint) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trireme-prune-{}", ::getpid());
  for (const char* method : {"magnitude", "movement", "random"}) {
    train::Config config = pruned("gpt2", method, "unstructured", "gradual", 6);
    Trained whole(config);
    whole.train(6);
    Trained first(config);
    first.train(3);
    train::save_checkpoint(folder, first.session(), config, 3, 1);
    Trained second(config);
    train::load_checkpoint(folder, 3, second.session());
    second.session().refresh_copies();
    second.skip_to(3);
    second.train(3);
    expect_same_state(whole, second);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace trireme::testing
