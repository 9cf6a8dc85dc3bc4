#include "trireme/ops/all.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/device/kernel.h"

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
