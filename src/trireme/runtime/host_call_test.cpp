#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/ir/print.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"
#include "trireme/runtime/executor.h"

// Failures while a GPU's stream has launches on the host in its queue, as where the host's cores make the update. They
// need a GPU.
namespace trireme::runtime {
namespace {

constexpr std::size_t kElements = 1024;

// brittle(x): a copy of x. On the host it fails for x[0] = 13, and takes long for x[0] = 14; on the GPU, where nothing
// is copied, its launch fails when `refuses` says so.
struct Brittle {
  std::atomic<bool> refuses = false;
  std::atomic<int> host_calls = 0;

  ir::OpDef definition() {
    ir::OpDef def = *testing::probe_registry().find("pair");
    def.name = "brittle";
    def.infer = [](std::span<const TensorType> in, const ir::Attributes&) { return ir::Types{in[0]}; };
    const auto always = [](const ir::KernelSpec&) { return true; };
    def.kernels[device::Kind::cpu] = {always, {}, [this](const ir::KernelSpec&) {
                                        return device::make_kernel([this](const device::Launch& l) {
                                          ++host_calls;
                                          const float* x = l.in<float>(0);
                                          if (x[0] == 13) fail("unlucky");
                                          if (x[0] == 14) std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                          std::copy_n(x, kElements, l.out<float>(0));
                                        });
                                      }};
    def.kernels[device::Kind::cuda] = {always, {}, [this](const ir::KernelSpec&) {
                                         return device::make_kernel([this](const device::Launch&) {
                                           if (refuses) fail("refused");
                                         });
                                       }};
    return def;
  }
};

class GpuHostCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda::gpus().empty()) GTEST_SKIP() << "no GPU here";
    registry.add(brittle.definition());
    module = ir::parse(R"(module {
  state @m : f32[1024] category=optimizer tier=1
  state @w : f32[1024] trained
  graph micro {
    input %x : f32[1024]
    %g = add(%x, @w) : f32[1024] phase=weight_gradient
    %gs = store(%g) {tier=1} : f32[1024] phase=update
    %n = brittle(%gs) : f32[1024] phase=update on_host
    %p = brittle(%n) : f32[1024] phase=update on_host
    %d = brittle(%g) : f32[1024] phase=update
    %l = load(%p) : f32[1024] phase=update
    write set @m = %n
    write set @w = %l
    output y = %d
  }
}
)",
                       registry);
    program = program::lower(module, program::lay_out(module), {.device = device::Kind::cuda});
    program::check(program);
    arena = std::make_unique<device::Arena>(program.arena_bytes, device::Kind::cuda);
    host = std::make_unique<device::HostBlock>(device::Kind::cuda, program.bytes_in(program::kHostTier));
    executor = std::make_unique<Executor>(program, *arena, pool, Tiers{.host = host.get()});
    zero_weights();
  }

  void zero_weights() { arena->write(0, std::vector<std::byte>(program.state_bytes)); }

  // What a run with this input throws.
  std::string run(float first) {
    values.assign(kElements, first);
    executor->bind("x", 0, std::span<const float>(values));
    zero_weights();
    brittle.host_calls = 0;
    try {
      executor->run();
    } catch (const Error& e) {
      return e.message();
    }
    return "fine";
  }

  Brittle brittle;
  ir::Registry registry = testing::probe_registry();
  ir::Module module;
  program::Program program;
  ThreadPool pool{1};
  std::unique_ptr<device::Arena> arena;
  std::unique_ptr<device::HostBlock> host;
  std::unique_ptr<Executor> executor;
  std::vector<float> values;
};

// In the first run launches are issued; from the second on they are replayed.
TEST_F(GpuHostCalls, AFailureOnTheHostNamesItsInstruction) {
  for (int round = 0; round < 5; ++round) {
    const std::string message = run(13);
    EXPECT_NE(message.find("(brittle 'n'"), std::string::npos) << message;
    EXPECT_NE(message.find("unlucky"), std::string::npos) << message;
    EXPECT_EQ(brittle.host_calls, 1);  // the second is skipped
    EXPECT_EQ(run(1), "fine");
    EXPECT_EQ(brittle.host_calls, 2);
  }
}

TEST_F(GpuHostCalls, ALaunchThatFailsBehindThemEndsTheRun) {
  brittle.refuses = true;
  const std::string message = run(14);
  EXPECT_NE(message.find("(brittle 'd'"), std::string::npos) << message;
  EXPECT_NE(message.find("refused"), std::string::npos) << message;
  EXPECT_LE(brittle.host_calls, 1);  // the second was in the queue, and is skipped
  brittle.refuses = false;
  for (int round = 0; round < 3; ++round) EXPECT_EQ(run(1), "fine");
}

}  // namespace
}  // namespace trireme::runtime
