#include "support/probe_ops.h"

#include "trireme/core/error.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/builder.h"
#include "trireme/ops/all.h"

namespace trireme::testing {
namespace {

ir::OpDef base(const std::string& name) {
  ir::OpDef def;
  def.name = name;
  def.no_gradient = "it is for tests";
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::Factors{};
  };
  def.cost = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) { return ir::Cost{}; };
  def.with_precision(ir::Precision::follow);
  def.kernels[device::Kind::cpu] = {[](const ir::KernelSpec&) { return false; },
                                    {},
                                    [](const ir::KernelSpec&) { return std::shared_ptr<device::Kernel>(); }};
  return def;
}

ir::OpDef cuda_only(const std::string& name, bool groups, bool shares_workspace) {
  ir::OpDef def = base(name);
  def.operands = {{"x"}, {"y", true}};
  def.infer = [](std::span<const TensorType> in, const ir::Attributes&) { return ir::Types{in[0]}; };
  ir::KernelDef& kernel = def.kernels[device::Kind::cuda] = def.kernels[device::Kind::cpu];
  kernel.supports = [](const ir::KernelSpec&) { return true; };
  kernel.groups = groups;
  kernel.shares_workspace = shares_workspace;
  if (shares_workspace) kernel.workspace = [](const ir::KernelSpec&) { return std::size_t{512}; };
  return def;
}

}  // namespace

ir::Registry probe_registry() {
  ir::Registry registry = ops::builtin();
  ir::OpDef probe = base("probe");
  probe.operands = {{"x"}, {"y", true}, {"z", true}};
  probe.attributes = {{"flag", false},
                      {"count", std::int64_t{0}},
                      {"ratio", 0.0},
                      {"label", std::string()},
                      {"dims", std::vector<std::int64_t>{}}};
  probe.infer = [](std::span<const TensorType> in, const ir::Attributes&) { return ir::Types{in[0]}; };
  registry.add(std::move(probe));

  ir::OpDef pair = base("pair");
  pair.operands = {{"x"}};
  pair.infer = [](std::span<const TensorType> in, const ir::Attributes&) { return ir::Types{in[0], {DType::f32, {}}}; };
  registry.add(std::move(pair));

  ir::OpDef together = base("together");
  together.operands = {{"xs", false, true}};
  together.attributes = {{"elements", std::int64_t{0}}};  // 0: as many as the first operand has
  together.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) {
    if (in.empty()) fail("together needs something");
    const std::int64_t elements = attributes.integer("elements");
    return ir::Types{elements == 0 ? in[0] : TensorType{in[0].dtype, {elements}}};
  };
  registry.add(std::move(together));

  registry.add(cuda_only("single", false, false));
  registry.add(cuda_only("many", true, false));
  registry.add(cuda_only("many_shared", true, true));
  ir::OpDef many_in_place = cuda_only("many_in_place", true, false);
  many_in_place.traits.in_place = {{0, 0}};
  registry.add(std::move(many_in_place));

  ir::OpDef twice;
  twice.name = "twice";
  twice.operands = {{"x"}};
  twice.attributes = {{"factor", 2.0}};
  twice.compose = [](std::span<const ir::Value> in, const ir::Attributes& attributes) {
    if (attributes.real("factor") != 2.0) fail("twice is twice");
    return ir::apply("add", {in[0], in[0]});
  };
  registry.add(std::move(twice));
  return registry;
}

}  // namespace trireme::testing
