#include "trireme/ops/all.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/allocations.h"
#include "support/guarded.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/builder.h"

namespace trireme::ops {
namespace {

const ir::Registry& registry() {
  static const ir::Registry instance = builtin();
  return instance;
}

TEST(Builtin, EveryFieldIsThere) {
  for (const ir::OpDef& op : registry().all()) {
    const std::vector<std::string> missing = op.missing_fields();
    EXPECT_TRUE(missing.empty()) << op.name << " has no " << fmt::format("{}", fmt::join(missing, ", "));
  }
}

ir::Attributes defaults(const ir::OpDef& op) {
  ir::Attributes attributes;
  for (const ir::AttributeSpec& spec : op.attributes) attributes.set(spec.name, spec.fallback);
  return attributes;
}

TEST(Builtin, InferRefusesWrongOperandCounts) {
  for (const ir::OpDef& op : registry().all()) {
    if (op.composite()) continue;
    const bool variadic = !op.operands.empty() && op.operands.back().variadic;
    const auto required = static_cast<std::size_t>(std::count_if(
        op.operands.begin(), op.operands.end(), [](const ir::OperandSpec& o) { return !o.optional && !o.variadic; }));
    const TensorType x = {DType::f32, {4, 4}};
    for (std::size_t count = 0; count < required; ++count)
      EXPECT_THROW(op.infer(ir::Types(count, x), defaults(op)), Error) << op.name << " with " << count << " operands";
    if (!variadic) {
      EXPECT_THROW(op.infer(ir::Types(op.operands.size() + 1, x), defaults(op)), Error)
          << op.name << " with one operand too many";
    }
  }
}

TEST(Builtin, InferRefusesMissingOperands) {
  for (const ir::OpDef& op : registry().all()) {
    if (op.composite() || op.operands.empty()) continue;
    EXPECT_THROW(op.infer(ir::Types(op.operands.size(), TensorType::none()), defaults(op)), Error) << op.name;
  }
}

// What every test of an op would say: the fault is planted in a kernel that takes memory of its own, and gives it back.
TEST(Builtin, AKernelThatAllocatesIsFound) {
  if (!testing::allocations_are_counted()) GTEST_SKIP() << "the sanitizers bring an allocator of their own";
  if (testing::test_device() != device::Kind::cpu) GTEST_SKIP() << "counted on CPUs";
  static ir::OpDef faulty = registry().at("relu");
  static ir::Module module;
  static std::size_t bytes = std::size_t{1} << 30;
  faulty.kernels.at(device::Kind::cpu).prepare =
      [sound = registry().at("relu").kernels.at(device::Kind::cpu).prepare](const ir::KernelSpec& spec) {
        return device::make_kernel([kernel = sound(spec)](const device::Launch& launch) {
          kernel->launch(launch);
          auto* volatile secret = static_cast<char*>(std::malloc(bytes));
          *secret = 1;
          std::free(secret);
        });
      };
  module.registry = &registry();
  const ir::Builder b(module, "micro");
  const TensorType type{DType::f32, {4, 4}};
  const ir::Value x = b.input("x", type);
  ir::Graph& graph = module.graph("micro");
  graph.outputs.push_back({"y", graph.add(faulty, {x.id()}, {}, "y").front()});
  static const std::map<std::string, testing::Tensor> inputs = {{"x", testing::Tensor::zeros(type)}};
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    testing::run_guarded(module, inputs, {});
  }
  ASSERT_GT(failures.size(), 0);
  EXPECT_NE(std::string(failures.GetTestPartResult(failures.size() - 1).message())
                .find("whenever it runs: 1 times, 1073741824 bytes"),
            std::string::npos);
  // However little it is.
  bytes = 1;
  EXPECT_NONFATAL_FAILURE(testing::run_guarded(module, inputs, {}), "whenever it runs: 1 times, 1 bytes");
}

TEST(Builtin, InPlaceClaimsNameOperandsThatExist) {
  for (const ir::OpDef& op : registry().all())
    for (const auto& [output, input] : op.traits.in_place) {
      EXPECT_GE(output, 0) << op.name;
      EXPECT_GE(input, 0) << op.name;
      EXPECT_LT(input, static_cast<int>(op.operands.size())) << op.name;
    }
}

// Seen on every machine: the kernels that a build with CUDA registers are read off its sources.
TEST(Builtin, EveryOpHasAKernelOnAGpu) {
  if (!std::filesystem::exists(source_dir())) GTEST_SKIP() << "the sources are not on this machine";
  std::string registered;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_dir() + "/src/trireme/ops"))
    if (entry.path().filename() == "cuda_kernels.cpp") {
      std::ifstream in(entry.path());
      registered += std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
  EXPECT_NE(registered.find("\"matmul\""), std::string::npos);
  for (const ir::OpDef& op : registry().all()) {
    if (op.traits.view || !op.kernels.contains(device::Kind::cpu)) continue;
    if (op.name == "store" || op.name == "load") continue;  // copies between tiers, which a stream makes
    EXPECT_NE(registered.find("\"" + op.name + "\""), std::string::npos) << op.name;
  }
}

}  // namespace
}  // namespace trireme::ops
