// The closing replay: a run whose ranks do not train like one is found, and its exit code says so.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "trireme/cli/cli.h"
#include "trireme/ops/define.h"

namespace trireme::cli {
namespace {

// In a folder of its own, with its output kept.
struct Finished {
  int code;
  std::string out;
  std::string err;
};
Finished trained(const train::Registry& registry, std::vector<std::string> words) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trireme-replay-{}", ::getpid());
  std::filesystem::remove_all(folder);
  words.insert(words.begin(), {"trireme", "train", "--output.dir=" + folder.string(), "--replay=3", "--train.steps=3"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = cli_main(static_cast<int>(arguments.size()), arguments.data(), registry);
  Finished f{code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
  std::filesystem::remove_all(folder);
  return f;
}

std::vector<std::string> mlp() {
  return {"mlp",
          "--data.images=synthetic",
          "--model.image=8",
          "--model.width=16",
          "--train.batch=16",
          "--parallel.mesh=dp=2",
          "--train.optimizer=sgd",
          "--train.lr=0.1",
          "--train.warmup=0",
          "--disable-pass=fuse"};
}

TEST(Replay, EqualRanksEndInZero) {
  const Finished f = trained({}, mlp());
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.out.find("✓"), std::string::npos) << f.out;
}

// A fault that is planted: gradients of a rank that has some of the rows are too large.
TEST(Replay, RanksThatDoNotTrainLikeOneEndInOne) {
  train::Registry registry;
  ir::OpDef& op = registry.ops.edit("relu_grad");
  ops::on_cpu(op, [](const ir::KernelSpec& spec) {
    const float factor = spec.inputs[0].shape[0] < 16 ? 1.5F : 1.0F;
    const auto count = static_cast<std::size_t>(spec.inputs[0].elements());
    return ops::make_kernel([factor, count](const device::Launch& l) {
      for (std::size_t i = 0; i < count; ++i)
        l.out<float>(0)[i] = l.in<float>(0)[i] > 0 ? factor * l.in<float>(1)[i] : 0.0F;
    });
  });
  const Finished f = trained(registry, mlp());
  EXPECT_EQ(f.code, 1) << f.out;
  EXPECT_NE(f.out.find("✗"), std::string::npos) << f.out;
  EXPECT_NE(f.err.find("error: 2 ranks did not train like one"), std::string::npos) << f.err;
}

// A small residual network under Adam: batch norms over a few rows, and updates that are as large for a gradient that
// is rounding alone as for any other.
std::vector<std::string> resnet() {
  return {"resnet18",        "--data.images=synthetic", "--model.image=16",       "--model.width=8",
          "--train.batch=8", "--parallel.mesh=dp=2",    "--train.optimizer=adamw"};
}

// It lacks the gradient of one of its convolutions, on ranks that have some of the rows.
TEST(Replay, AMissingGradientOfAnIllConditionedRunIsFound) {
  for (const std::int64_t elements : {8 * 7 * 7 * 3, 16 * 3 * 3 * 8, 64 * 3 * 3 * 32}) {
    train::Registry registry;
    ir::KernelDef& kernel = registry.ops.edit("conv2d_grad_weight").kernels.at(device::Kind::cpu);
    kernel.prepare = [elements, whole = kernel.prepare](const ir::KernelSpec& spec) -> std::shared_ptr<device::Kernel> {
      if (spec.inputs[0].shape[0] == 8 || spec.outputs[0].elements() != elements) return whole(spec);
      return ops::make_kernel([elements, adds = spec.accumulate](const device::Launch& l) {
        if (!adds) std::fill_n(l.out<float>(0), elements, 0.0F);
      });
    };
    const Finished f = trained(registry, resnet());
    EXPECT_EQ(f.code, 1) << elements << ": " << f.out;
    EXPECT_NE(f.out.find("✗"), std::string::npos) << elements << ": " << f.out;
  }
}

}  // namespace
}  // namespace trireme::cli
