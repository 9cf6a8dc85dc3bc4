#include "trireme/train/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/train/compile.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;

Config config_of(const std::string& mesh, Device device = Device::automatic) {
  Config config;
  config.model.family = "gpt2";
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = 2;
  config.model.context = 16;
  config.train.batch = 8;
  config.parallel.mesh = mesh;
  config.runtime.device = device;
  resolve_model(config, 256);
  return config;
}

constexpr Gpus kNone{.built = true}, kTwo{.built = true, .found = 2, .installed = true};

TEST(DeviceChoice, AutoTakesAGpuForEveryRankOfTheMachine) {
  EXPECT_EQ(choose_device(config_of("dp=2"), 0, kTwo).device, device::Kind::cuda);
  // Four ranks on two machines.
  EXPECT_EQ(choose_device(config_of("dp=4"), 2, kTwo).device, device::Kind::cuda);
}

TEST(DeviceChoice, AutoSaysWhyItComputesOnTheCpu) {
  const auto why = [](const Config& config, const Gpus& gpus) {
    const DeviceChoice choice = choose_device(config, 0, gpus);
    EXPECT_EQ(choice.device, device::Kind::cpu);
    return choice.why;
  };
  EXPECT_THAT(why(config_of("dp=4"), kTwo),
              HasSubstr("4 ranks of parallel.mesh = \"dp=4\" are on this machine and 2 GPUs"));
  EXPECT_THAT(why(config_of("dp=1"), {.built = false, .installed = true}), HasSubstr("this build no CUDA"));
  EXPECT_THAT(why(config_of("dp=1"), {.built = true, .installed = true}), HasSubstr("CUDA finds none"));
  Config served = config_of("dp=2");
  served.parallel.server = Server::sync;
  EXPECT_THAT(why(served, kTwo), HasSubstr("parallel.server = \"sync\" is the CPU's so far"));
  // Where there is no GPU, or none is wanted, there is nothing to say.
  EXPECT_EQ(why(config_of("dp=1"), kNone), "");
  EXPECT_EQ(why(config_of("dp=1"), {}), "");
  EXPECT_EQ(why(config_of("dp=2", Device::cpu), kTwo), "");
}

TEST(DeviceChoice, CudaIsRefusedWhereTheBuildHasNone) {
  EXPECT_THROW(choose_device(config_of("dp=1", Device::cuda), 0, {}), Error);
  EXPECT_EQ(choose_device(config_of("dp=4", Device::cuda), 0, kTwo).device, device::Kind::cuda);
}

}  // namespace
}  // namespace trireme::train
