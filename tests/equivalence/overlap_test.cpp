// What is overlapped is the same training, needs little more memory, and is hidden.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "equivalence/training.h"
#include "trireme/device/kernel.h"
#include "trireme/ops/define.h"
#include "trireme/program/deferred_gradients.h"
#include "trireme/runtime/communication_time.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model = {};
  std::string mesh = {};
  bool sequence = false;
  bool async_tp = false;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.mesh;
  if (info.param.sequence) name += "_sequence";
  if (info.param.async_tp) name += "_async_tp";
  std::erase(name, '=');
  std::replace(name.begin(), name.end(), ',', '_');
  return name;
}

train::Config config_of(const Case& c, const std::string& mesh) {
  train::Config config = small_model(c.model);
  if (reads_images(config)) {
    config.model.image = mesh.find("h=3") == std::string::npos ? 32 : 64;  // high enough slices
  } else {
    config.model.context = 32;
    config.model.width = 32;
    config.model.ffn = 64;
    config.model.head_dim = 0;
  }
  train::resolve_model(config, config.model.vocab);
  config.parallel.sequence = c.sequence;
  config.parallel.async_tp = c.async_tp;
  return over_mesh(config, mesh);
}

class Overlapped : public ::testing::TestWithParam<Case> {};

// The same numbers are added in the same order.
TEST_P(Overlapped, TrainsToTheSameBits) {
  for (const auto& [remat, zero, micro] : {std::tuple{"none", 0, 0}, {"full", 0, 2}, {"full", 2, 0}}) {
    if (zero > 0 && GetParam().mesh.find("dp") == std::string::npos) continue;
    SCOPED_TRACE(fmt::format("remat {} zero {} micro-batch {}", remat, zero, micro));
    train::Config config = config_of(GetParam(), GetParam().mesh);
    config.memory.remat = remat;
    config.parallel.zero = zero;
    config.parallel.bucket.count = 4096;  // several buckets
    if (micro > 0) config.train.micro_batch = config.train.batch / micro;
    train::Config plain = config;
    plain.parallel.overlap = false;
    Trained a(config);
    Trained b(plain);
    a.train(3);
    b.train(3);
    expect_same_bits(a, b);
    EXPECT_EQ(a.session().highest_offset(), a.compiled().arena_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Overlapped,
                         ::testing::Values(Case{"gpt2", "tp=2"}, Case{"llama", "tp=2", true},
                                           Case{"gpt2", "tp=2", true, true}, Case{"gpt2", "dp=2,tp=2", true},
                                           Case{"convnet", "h=2"}, Case{"convnet", "w=2"}, Case{"convnet", "dp=2,h=3"},
                                           Case{"resnet18", "h=2,w=2"}),
                         name_of);

// What is kept for deferred gradients is what that many of them read.
TEST(OverlapMemory, GrowsByWhatDeferredGradientsRead) {
  for (const Case& c : {Case{"gpt2", "tp=2"}, Case{"gpt2", "tp=2", true}, Case{"convnet", "h=2"}}) {
    train::Config config = config_of(c, c.mesh);
    config.model.layers = reads_images(config) ? 4 : 8;
    train::Config plain = config;
    plain.parallel.overlap = false;
    const Trained with(config);
    const Trained without(plain);
    std::vector<std::size_t> read;
    for (const program::Instruction& i : with.role().program("step").instructions) {
      if (i.kind != program::Instruction::Kind::launch || i.phase != ir::Phase::weight_gradient) continue;
      std::size_t& bytes = read.emplace_back(0);
      for (const program::Operand& o : i.inputs)
        if (o.buffer != program::kNone) bytes += o.type.bytes();
    }
    std::sort(read.begin(), read.end(), std::greater<>());
    std::size_t bound = 0;
    for (std::size_t i = 0; i < std::min(read.size(), program::kDeferred); ++i) bound += read[i];
    fmt::print("{} {}{}: {} bytes overlapped, {} not\n", c.model, c.mesh, c.sequence ? " sequence" : "",
               with.compiled().arena_bytes(), without.compiled().arena_bytes());
    EXPECT_LE(with.compiled().arena_bytes(), without.compiled().arena_bytes() + bound);
  }
}

// ---- as traced

constexpr std::chrono::milliseconds kKernel(12);
constexpr std::chrono::milliseconds kLatency(4);

// Takes as long as the other one and a wait. A wait needs no core, so that ranks compute at the same time however few
// there are.
class Slowed final : public device::Kernel {
 public:
  explicit Slowed(std::shared_ptr<device::Kernel> kernel) : kernel_(std::move(kernel)) {}
  void launch(const device::Launch& launch) override {
    kernel_->launch(launch);
    std::this_thread::sleep_for(kKernel);
  }

 private:
  std::shared_ptr<device::Kernel> kernel_;
};

train::Registry with_slow(const std::vector<std::string>& ops) {
  train::Registry registry;
  for (const std::string& op : ops) {
    ir::KernelDef& def = registry.ops.edit(op).kernels.at(device::Kind::cpu);
    def.prepare = [prepare = def.prepare](const ir::KernelSpec& spec) {
      return std::make_shared<Slowed>(prepare(spec));
    };
  }
  return registry;
}

// Of the collectives of one kind in one phase, the share that is hidden behind kernels, on the rank that hides least.
// The most of a few tries: others may want the machine.
double hidden(const train::Config& config, const std::string& op, ir::Phase phase) {
  double most = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const train::Registry slow =
        with_slow({"matmul", "conv2d", "conv2d_grad_input", "conv2d_grad_weight", "attention", "attention_grad"});
    Trained trained(config, {.registry = slow, .link = fmt::format("100GB/s,{}ms", kLatency.count())});
    trained.train(1);  // kernels are prepared, memory has been touched
    std::vector<std::unique_ptr<runtime::Trace>> traces;
    for (const auto& rank : trained.session().ranks()) {
      traces.push_back(std::make_unique<runtime::Trace>(std::size_t{1} << 16));
      rank->step_executor().set_trace(traces.back().get());
    }
    trained.train(1);
    double least = 1;
    for (std::size_t r = 0; r < traces.size(); ++r) {
      trained.session().rank(r).step_executor().set_trace(nullptr);
      const auto asked = [&](const program::Instruction& i) {
        return i.op->name == op && i.phase == phase && i.outputs.front().type.shape.rank() > 0;
      };
      const train::Rank& rank = trained.session().rank(r);
      const runtime::CommunicationTime all =
          runtime::communication_time(*traces[r], rank.role().program(trained.compiled().steps.back().program), asked);
      EXPECT_GT(all.seconds, 0) << op;
      least = std::min(least, all.hidden_share());
    }
    most = std::max(most, least);
  }
  fmt::print("{} in {}: {:.0f}% hidden\n", op, ir::name_of(phase), 100 * most);
  return most;
}

train::Config not_overlapped(train::Config config) {
  config.parallel.overlap = false;
  return config;
}

// A collective takes two latencies here and a kernel more than both, so that one kernel launched behind its start hides
// it, and an order that starts it right before its result is read hides nothing.
TEST(OverlapTraced, TensorParallelSums) {
  const train::Config config = config_of({"gpt2"}, "tp=2");
  EXPECT_GT(hidden(config, "all_reduce", ir::Phase::input_gradient), 0.75);
  EXPECT_LT(hidden(not_overlapped(config), "all_reduce", ir::Phase::input_gradient), 0.1);
}

TEST(OverlapTraced, SequenceParallelGathersAndScatters) {
  const train::Config config = config_of({"gpt2", "", true}, "tp=2");
  EXPECT_GT(hidden(config, "reduce_scatter", ir::Phase::input_gradient), 0.7);
  const train::Config in_parts = config_of({"gpt2", "", true, true}, "tp=2");
  EXPECT_GT(hidden(in_parts, "reduce_scatter", ir::Phase::forward), 0.5);
  EXPECT_GT(hidden(in_parts, "all_gather", ir::Phase::forward), 0.5);
}

TEST(OverlapTraced, Halos) {
  for (const char* mesh : {"h=2", "w=2"}) {
    SCOPED_TRACE(mesh);
    train::Config config = config_of({"convnet"}, mesh);
    config.train.batch_stats = "local";
    EXPECT_GT(hidden(config, "halo_exchange", ir::Phase::forward), 0.7);
    EXPECT_GT(hidden(config, "halo_exchange", ir::Phase::input_gradient), 0.7);
    EXPECT_LT(hidden(not_overlapped(config), "halo_exchange", ir::Phase::forward), 0.1);
    EXPECT_LT(hidden(not_overlapped(config), "halo_exchange", ir::Phase::input_gradient), 0.1);
  }
}

}  // namespace
}  // namespace trireme::testing
