#include "trireme/passes/node_cut.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::passes {
namespace {

using ir::Factor;
using ir::Sharding;
using Axes = std::vector<std::string>;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool carries(const std::vector<int>& dims, int factor) {
  return std::find(dims.begin(), dims.end(), factor) != dims.end();
}

// By factor: the axes that cut it. Where operands disagree the first one decides.
std::vector<Axes> factor_axes(const ir::Factors& factors, bool may_cut_whole, std::span<const Sharding> operands,
                              std::string& whole_axis) {
  std::vector<Axes> axes(factors.factors.size());
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t d = 0; d < operands[i].dims.size(); ++d) {
      const Axes& cut = operands[i].dims[d];
      if (cut.empty()) continue;
      const int factor = factors.inputs[i][d];
      if (factors.factors[at(factor)].kind != Factor::Kind::free) {
        if (!may_cut_whole || cut.size() != 1) continue;
        whole_axis = cut.front();
      }
      if (axes[at(factor)].empty()) axes[at(factor)] = cut;
    }
  return axes;
}

// The axes over which all of an op's float operands are terms of sums, or one of them where that is enough.
std::vector<Sharding::Partial> sums_through(const ir::Node& node, const ir::Types& inputs,
                                            std::span<const Sharding> operands) {
  std::size_t floats = 0;
  std::size_t terms = 0;
  std::vector<Sharding::Partial> common;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!inputs[i].present || !is_float(inputs[i].dtype)) continue;
    ++floats;
    if (operands[i].partial.empty()) continue;
    if (terms++ > 0 && operands[i].partial != common) return {};
    common = operands[i].partial;
  }
  const bool sums = std::all_of(common.begin(), common.end(),
                                [](const Sharding::Partial& p) { return p.reduce == Sharding::Reduce::sum; });
  const bool through = (node.op->traits.linear == ir::Linear::jointly && terms == floats) ||
                       (node.op->traits.linear == ir::Linear::separately && terms == 1);
  return sums && through ? common : std::vector<Sharding::Partial>{};
}

}  // namespace

NodeCut cut_node(const ir::Node& node, const ir::Types& inputs, const ir::Types& outputs,
                 std::span<const Sharding> operands) {
  NodeCut cut;
  const ir::Factors factors = node.op->factors(inputs, outputs, node.attributes);
  const std::vector<Axes> axes = factor_axes(factors, static_cast<bool>(node.op->partition), operands, cut.whole_axis);
  const std::vector<Sharding::Partial> through = sums_through(node, inputs, operands);
  const auto dims_of = [&](const std::vector<int>& dims) {
    std::vector<Axes> result;
    result.reserve(dims.size());
    for (const int factor : dims) result.push_back(axes[at(factor)]);
    return result;
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Sharding& wanted = cut.inputs.emplace_back();
    if (!inputs[i].present) continue;
    wanted.dims = dims_of(factors.inputs[i]);
    if (!operands[i].partial.empty()) wanted.partial = through;
  }
  for (const std::vector<int>& dims : factors.outputs) {
    Sharding& result = cut.outputs.emplace_back();
    result.dims = dims_of(dims);
    result.partial = through;
    for (std::size_t f = 0; f < axes.size(); ++f) {
      const bool reduced = !carries(dims, static_cast<int>(f)) && cut.whole_axis.empty();
      if (!reduced) continue;
      for (const std::string& axis : axes[f])
        result.partial.push_back({axis, factors.max_reduced ? Sharding::Reduce::max : Sharding::Reduce::sum});
    }
  }
  return cut;
}

TensorType local_type(const TensorType& type, const Sharding& sharding, const ir::Mesh& mesh, const std::string& name) {
  TensorType local = type;
  for (std::size_t d = 0; d < sharding.dims.size(); ++d)
    for (const std::string& axis : sharding.dims[d]) {
      std::int64_t& extent = local.shape[static_cast<int>(d)];
      const int parts = mesh.size_of(axis);
      if (extent % parts != 0)
        fail("'{}' of {} cannot be cut in {} equal parts over {}", name, type.str(), parts, axis);
      extent /= parts;
    }
  return local;
}

}  // namespace trireme::passes
