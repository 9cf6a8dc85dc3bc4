#include "trireme/runtime/executor.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "support/folder.h"
#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/builder.h"
#include "trireme/ir/print.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"

namespace trireme::runtime {
namespace {

using program::Instruction;
using program::Program;

// risky(x): a copy of x, unless its first element asks for trouble.
ir::OpDef risky() {
  ir::OpDef def = *testing::probe_registry().find("pair");
  def.name = "risky";
  def.infer = [](std::span<const TensorType> in, const ir::Attributes&) { return ir::Types{in[0]}; };
  class Risky final : public device::Kernel {
   public:
    explicit Risky(std::size_t n) : n_(n) {}
    void launch(const device::Launch& l) override {
      const float* x = l.in<float>(0);
      if (x[0] == 13) fail("unlucky");
      if (x[0] == 14) throw std::runtime_error("from a library");
      if (x[0] == 15) throw 15;
      std::copy_n(x, n_, l.out<float>(0));
    }

   private:
    std::size_t n_;
  };
  def.kernels[device::Kind::cpu] = {
      [](const ir::KernelSpec&) { return true; },
      {},
      [](const ir::KernelSpec& spec) -> std::shared_ptr<device::Kernel> {
        return std::make_shared<Risky>(static_cast<std::size_t>(spec.inputs[0].elements()));
      }};
  return def;
}

// y = (risky(a) · 2) + (risky(b) · 3), the second half on a stream of its own.
class ExecutorTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kElements = 1000;

  ExecutorTest() {
    registry.add(risky());
    module.registry = &registry;
    const ir::Builder g(module, "micro");
    const TensorType type{DType::f32, {kElements}};
    const ir::Value a = ir::apply1("risky", {g.scope("left").here(g.input("a", type))});
    const ir::Value b = ir::apply1("risky", {g.scope("right").here(g.input("b", type))});
    const ir::Value left = ir::apply1("scale", {a}, {{"factor", 2.0}});
    const ir::Value right = ir::apply1("scale", {b}, {{"factor", 3.0}});
    g.output("y", ir::apply1("add", {left, right}));
    program = program::lower(module, program::lay_out(module), {.threads = 2, .reuse_in_place = false});
    // As if nothing were ever reused, so that the streams share nothing but events.
    std::size_t offset = 0;
    for (program::Buffer& buffer : program.buffers) {
      buffer.offset = offset;
      offset += program::aligned(buffer.bytes);
    }
    program.arena_bytes = offset;
    for (Instruction& i : program.instructions) {
      if (i.name == "b") i.records = 0;
      if (i.name.starts_with("right")) i.stream = 1;
      if (i.name == "right.risky") i.waits = {0};
      if (i.name == "right.scale") i.records = 1;
      if (i.name == "left.add") i.waits = {1};
    }
    program::check(program);
    arena = std::make_unique<device::Arena>(program.arena_bytes);
    executor = std::make_unique<Executor>(program, *arena, pool);
    values_a.assign(kElements, 1);
    values_b.assign(kElements, 2);
  }

  void bind() {
    executor->bind("a", 0, std::span<const float>(values_a));
    executor->bind("b", 0, std::span<const float>(values_b));
  }

  float y(std::size_t i) const { return reinterpret_cast<const float*>(executor->output("y").data())[i]; }

  static std::string message_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return "fine";
  }

  ir::Registry registry = testing::probe_registry();
  ir::Module module;
  Program program;
  ThreadPool pool{2};
  std::unique_ptr<device::Arena> arena;
  std::unique_ptr<Executor> executor;
  std::vector<float> values_a;
  std::vector<float> values_b;
};

TEST_F(ExecutorTest, TwoStreamsAgainAndAgain) {
  bind();
  for (int run = 0; run < 500; ++run) {
    values_a.assign(kElements, static_cast<float>(-run));
    values_b[kElements - 1] = static_cast<float>(run);
    executor->run();
    ASSERT_EQ(y(0), -2.0F * static_cast<float>(run) + 6.0F);
    ASSERT_EQ(y(kElements - 1), static_cast<float>(run));
  }
  arena->check_guards();
  EXPECT_EQ(executor->highest_offset(), program.buffers.back().offset + program.buffers.back().bytes);
}

TEST_F(ExecutorTest, FailureOnEitherStreamIsReportedAndNothingHangs) {
  bind();
  const auto run = [&] { executor->run(); };
  for (int round = 0; round < 50; ++round) {
    values_a[0] = 13;
    EXPECT_EQ(message_of(run), "instruction 2 (risky 'left.risky', micro-batch 0): unlucky");
    values_a[0] = 1;
    values_b[0] = 13;
    EXPECT_EQ(message_of(run), "instruction 3 (risky 'right.risky', micro-batch 0): unlucky");
    values_b[0] = 14;
    EXPECT_EQ(message_of(run), "instruction 3 (risky 'right.risky', micro-batch 0): from a library");
    values_b[0] = 15;
    EXPECT_EQ(message_of(run), "instruction 3 (risky 'right.risky', micro-batch 0) failed");
    values_b[0] = 2;
    EXPECT_EQ(message_of(run), "fine");
    EXPECT_EQ(y(0), 8.0F);
  }
}

TEST_F(ExecutorTest, CheckedRunsCountEventsToo) {
  bind();
  EXPECT_FALSE(executor->run_checked());
  executor->run();
  values_b[0] = 13;
  EXPECT_EQ(message_of([&] { executor->run_checked(); }),
            "instruction 3 (risky 'right.risky', micro-batch 0): unlucky");
  values_b[0] = 2;
  executor->run();  // would wait for ever had the failed run left an event out
  EXPECT_EQ(y(0), 8.0F);
}

TEST_F(ExecutorTest, CheckedRunNamesTheFirstBadTensor) {
  bind();
  values_b[17] = std::numeric_limits<float>::quiet_NaN();
  values_a[3] = -std::numeric_limits<float>::infinity();
  auto bad = executor->run_checked();
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->instruction, 2U);
  EXPECT_EQ(bad->op, "risky");
  EXPECT_EQ(bad->tensor, "left.risky");
  EXPECT_EQ(bad->micro, 0);
  EXPECT_EQ(bad->what, "-inf at element 3");
  values_a[3] = 1e38F;  // twice that is finite; three times is not
  values_b[17] = 2e38F;
  bad = executor->run_checked();
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->tensor, "right.scale");
  EXPECT_EQ(bad->what, "+inf at element 17");
}

TEST_F(ExecutorTest, InputsMustBeBound) {
  EXPECT_EQ(message_of([&] { executor->run(); }), "input 'a' of micro-batch 0 is not bound");
  executor->bind("a", 0, std::span<const float>(values_a));
  EXPECT_EQ(message_of([&] { executor->run_checked(); }), "input 'b' of micro-batch 0 is not bound");
  EXPECT_EQ(message_of([&] { executor->bind("c", 0, std::span<const float>(values_a)); }),
            "program 'step' has no input 'c' in micro-batch 0");
  EXPECT_EQ(message_of([&] { executor->bind("a", 1, std::span<const float>(values_a)); }),
            "program 'step' has no input 'a' in micro-batch 1");
  EXPECT_EQ(message_of([&] { executor->bind("a", 0, std::span<const float>(values_a).first(3)); }),
            "input 'a' is f32[1000], got 12 bytes");
  EXPECT_EQ(message_of([&] { executor->output("z"); }), "program 'step' has no output 'z' in micro-batch 0");
  EXPECT_NE(message_of([&] { executor->scalar("y"); }).find("output 'y' is not an f32 scalar"), std::string::npos);
}

TEST_F(ExecutorTest, ArenaAndPoolMustFit) {
  device::Arena small(program.arena_bytes - 64);
  EXPECT_EQ(
      message_of([&] { Executor(program, small, pool); }),
      fmt::format("program 'step' needs an arena of {} bytes, got {}", program.arena_bytes, program.arena_bytes - 64));
  ThreadPool large(3);
  EXPECT_EQ(message_of([&] { Executor(program, *arena, large); }), "program 'step' is for 2 threads, got 3");
}

// Sums of two micro-batches on the disk, and a value that comes back: against the same program without a disk.
TEST(ExecutorTiers, ComputesWhatTheDeviceAloneDoes) {
  const ir::Registry registry = testing::probe_registry();
  const std::string text = R"(module {
  state @sum : f32[3000] category=gradients unsaved step_local TIER
  graph micro {
    input %x : f32[7,3000]
    %r = reduce(%x) {dims=[0], kind="sum", out="same"} : f32[3000]
    %a = relu(%x) : f32[7,3000]
    STORE
    %b = scale(%a) {factor=2.0} : f32[7,3000]
    LOAD
    %y = add(%b, %l) : f32[7,3000]
    write add @sum = %r
    output y = %y
  }
  graph update {
    %t = UPDATE(@sum) : f32[3000] phase=update
    %z = scale(%t) {factor=3.0} : f32[3000] phase=update
    output z = %z
  }
}
)";
  const auto filled = [&](const std::vector<std::pair<std::string, std::string>>& words) {
    std::string out = text;
    for (const auto& [from, to] : words) out.replace(out.find(from), from.size(), to);
    return out;
  };
  const test::Folder folder;
  ThreadPool pool{2};
  std::vector<float> x(7 * 3000);
  const auto results = [&](const ir::Module& module, bool checked) {
    const Program p = program::lower(module, program::lay_out(module),
                                     {.body = "micro", .tail = "update", .micro_batches = 2, .threads = 2});
    program::check(p);
    device::Arena arena(p.arena_bytes);
    device::TierFile disk(folder.path(), p.bytes_in(2));
    Executor executor(p, arena, pool, {.disk = &disk});
    for (int m = 0; m < 2; ++m) executor.bind("x", m, std::span<const float>(x));
    std::vector<std::byte> all;
    for (int run = 0; run < 20; ++run) {
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(run)) % 23);
      if (checked)
        EXPECT_FALSE(executor.run_checked());
      else
        executor.run();
      for (const auto& [name, micro] : {std::pair("y", 0), std::pair("y", 1), std::pair("z", 0)}) {
        const auto bytes = executor.output(name, micro);
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    }
    arena.check_guards();
    EXPECT_EQ(executor.highest_offset(), p.arena_bytes);
    EXPECT_EQ(executor.highest_offset(2), p.bytes_in(2));
    return all;
  };
  // Nothing is negative, so relu does what loads do.
  const ir::Module plain = ir::parse(
      filled({{"TIER", ""}, {"STORE", ""}, {"LOAD", "%l = relu(%a) : f32[7,3000]"}, {"UPDATE", "relu"}}), registry);
  const ir::Module tiered = ir::parse(filled({{"TIER", "tier=2"},
                                              {"STORE", "%s = store(%a) {tier=2} : f32[7,3000]"},
                                              {"LOAD", "%l = load(%s) : f32[7,3000]"},
                                              {"UPDATE", "load"}}),
                                      registry);
  const auto expected = results(plain, false);
  EXPECT_TRUE(results(tiered, true) == results(tiered, false));
  EXPECT_TRUE(results(tiered, false) == expected);
}

TEST_F(ExecutorTest, TraceIsJsonWithEverySpan) {
  bind();
  Trace trace(1000);
  executor->set_trace(&trace);
  executor->run();
  executor->run();
  executor->set_trace(nullptr);
  executor->run();
  EXPECT_EQ(trace.spans(), 2 * program.instructions.size());
  EXPECT_EQ(trace.dropped(), 0U);
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("trireme_trace_" + std::to_string(::getpid()) + ".json");
  trace.write(file, "rank \"0\"\n");
  std::ifstream in(file);
  const nlohmann::json json = nlohmann::json::parse(in);
  std::filesystem::remove(file);
  EXPECT_FALSE(std::filesystem::exists(file.string() + ".partial"));
  EXPECT_EQ(json["traceEvents"][0]["args"]["name"], "rank \"0\"\n");
  std::map<std::string, int> names;
  std::map<int, double> busy_until;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++names[event["name"]];
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_EQ(event["tid"], event["name"].get<std::string>().find("right") != std::string::npos ? 1 : 0);
    // One thing at a time on each stream.
    EXPECT_GE(event["ts"].get<double>() + 0.01, busy_until[event["tid"].get<int>()]);
    busy_until[event["tid"].get<int>()] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"input a", 2},
                                               {"input b", 2},
                                               {"risky left.risky", 2},
                                               {"risky right.risky", 2},
                                               {"scale left.scale", 2},
                                               {"scale right.scale", 2},
                                               {"add left.add", 2}}));
}

TEST_F(ExecutorTest, FullTraceDropsAndCounts) {
  bind();
  Trace trace(5);
  executor->set_trace(&trace);
  executor->run();
  EXPECT_EQ(trace.spans(), 5U);
  EXPECT_EQ(trace.dropped(), program.instructions.size() - 5);
  EXPECT_NE(message_of([&] { trace.write("/nowhere/at/all.json", "x"); }).find("cannot write /nowhere/at/all.json"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::runtime
