#include "trireme/passes/node_sharding.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/routes.h"

namespace trireme::passes {
namespace {

using ir::Factor;
using ir::Sharding;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool is_by_function(const Factor& factor) {
  return factor.kind == Factor::Kind::partitioned || factor.kind == Factor::Kind::halo;
}

bool carries(const std::vector<int>& dims, int factor) {
  return std::find(dims.begin(), dims.end(), factor) != dims.end();
}

bool is_term(const Sharding& sharding, const std::string& axis) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [&](const Sharding::Partial& p) { return p.axis == axis && p.reduce == Sharding::Reduce::sum; });
}

}  // namespace

NodeRules::NodeRules(const ir::Node& node, const ir::Types& inputs, const ir::Types& outputs)
    : node_(node), inputs_(inputs), outputs_(outputs), factors_(node.op->factors(inputs, outputs, node.attributes)) {}

bool NodeRules::shardable(int factor, const std::string& axis) const {
  const Factor::Kind kind = factors_.factors[at(factor)].kind;
  if (factors_.factors[at(factor)].share && axis != ir::kDataAxis) return false;
  if (kind == Factor::Kind::halo) return ir::is_spatial(axis) && static_cast<bool>(node_.op->partition);
  return kind == Factor::Kind::free || kind == Factor::Kind::partitioned;
}

bool NodeRules::by_function(int factor) const { return is_by_function(factors_.factors[at(factor)]); }

std::int64_t NodeRules::extent(int factor) const {
  std::int64_t most = 0;
  const auto look = [&](const std::vector<std::vector<int>>& sides, const ir::Types& types) {
    for (std::size_t i = 0; i < sides.size(); ++i)
      for (std::size_t d = 0; d < sides[i].size(); ++d)
        if (sides[i][d] == factor) most = std::max(most, types[i].shape[static_cast<int>(d)]);
  };
  look(factors_.inputs, inputs_);
  look(factors_.outputs, outputs_);
  return most;
}

bool NodeRules::fits(int factor, const Axes& axes, const ir::Mesh& mesh) const {
  const std::int64_t ranks = ranks_along(axes, mesh);
  if (std::any_of(axes.begin(), axes.end(), [](const std::string& axis) { return ir::is_spatial(axis); })) {
    if (axes.size() > 1) return false;
    // Where extents differ, slices go together only as the op's windows do.
    const bool halo = factors_.factors[at(factor)].kind == Factor::Kind::halo;
    const auto enough = [&](const std::vector<std::vector<int>>& sides, const ir::Types& types) {
      for (std::size_t i = 0; i < sides.size(); ++i)
        for (std::size_t d = 0; d < sides[i].size(); ++d) {
          if (sides[i][d] != factor) continue;
          const std::int64_t own = types[i].shape[static_cast<int>(d)];
          if (!may_shard_spatially(own, axes.front(), mesh) || (!halo && own != extent(factor))) return false;
        }
      return true;
    };
    return enough(factors_.inputs, inputs_) && enough(factors_.outputs, outputs_);
  }
  const auto divides = [&](const std::vector<std::vector<int>>& sides, const ir::Types& types) {
    for (std::size_t i = 0; i < sides.size(); ++i)
      for (std::size_t d = 0; d < sides[i].size(); ++d) {
        if (sides[i][d] != factor) continue;
        const std::int64_t own = types[i].shape[static_cast<int>(d)];
        if (own % ranks != 0 && !(extent(factor) % ranks == 0 && shared_axes(factor, own, axes, mesh))) return false;
      }
    return true;
  };
  // Zeros fill up the last shards, of which each has something to begin with.
  if (may_pad(factor) && extent(factor) >= ranks) return true;
  return divides(factors_.inputs, inputs_) && divides(factors_.outputs, outputs_);
}

std::optional<int> NodeRules::share() const {
  for (std::size_t f = 0; f < factors_.factors.size(); ++f)
    if (factors_.factors[f].share) return static_cast<int>(f);
  return std::nullopt;
}

Axes NodeRules::partitioned(const std::vector<Axes>& axes) const {
  Axes all;
  for (std::size_t f = 0; f < axes.size(); ++f)
    if (is_by_function(factors_.factors[f])) all.insert(all.end(), axes[f].begin(), axes[f].end());
  return all;
}

std::int64_t NodeRules::shared_by(int factor, std::int64_t ranks) const {
  if (factors_.factors[at(factor)].kind != Factor::Kind::free || may_pad(factor) || node_.op->traits.view) return 0;
  const std::int64_t most = extent(factor);
  std::int64_t least = most;
  const auto look = [&](const std::vector<std::vector<int>>& sides, const ir::Types& types) {
    for (std::size_t i = 0; i < sides.size(); ++i)
      for (std::size_t d = 0; d < sides[i].size(); ++d)
        if (sides[i][d] == factor) least = std::min(least, types[i].shape[static_cast<int>(d)]);
  };
  look(factors_.inputs, inputs_);
  look(factors_.outputs, outputs_);
  return least < most && least < ranks && ranks % least == 0 && most % ranks == 0 ? least : 0;
}

std::optional<Axes> NodeRules::shared_axes(int factor, std::int64_t own, const Axes& axes, const ir::Mesh& mesh) const {
  // What a reshape takes together or apart is of other extents too, and none of it is shared.
  if (own == extent(factor) || node_.op->traits.view) return std::nullopt;
  Axes outer;
  for (const std::string& axis : axes) {
    if (ranks_along(outer, mesh) == own) return outer;
    outer.push_back(axis);
  }
  return std::nullopt;
}

NodeSharding NodeRules::sharded(std::vector<Axes> axes, std::vector<std::string> through,
                                const std::vector<Sharding>& operands, const ir::Mesh& mesh) const {
  NodeSharding result;
  result.factors = std::move(axes);
  result.through = std::move(through);
  result.partitioned = partitioned(result.factors);
  const auto dims_of = [&](const std::vector<int>& dims, const TensorType& type) {
    std::vector<Axes> each;
    each.reserve(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const Axes& all = result.factors[at(dims[d])];
      const std::int64_t own = type.shape[static_cast<int>(d)];
      const bool divides = may_pad(dims[d]) || own % ranks_along(all, mesh) == 0;
      each.push_back(divides ? all : shared_axes(dims[d], own, all, mesh).value_or(all));
    }
    return each;
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    Sharding& wanted = result.inputs.emplace_back();
    if (!inputs_[i].present) continue;
    wanted.dims = dims_of(factors_.inputs[i], inputs_[i]);
    for (const std::string& axis : result.through)
      if (is_term(operands[i], axis)) wanted.partial.push_back({axis, Sharding::Reduce::sum});
  }
  const bool gradient = node_.phase == ir::Phase::input_gradient || node_.phase == ir::Phase::weight_gradient;
  for (std::size_t o = 0; o < factors_.outputs.size(); ++o) {
    const std::vector<int>& dims = factors_.outputs[o];
    Sharding& made = result.outputs.emplace_back();
    made.dims = dims_of(dims, outputs_[o]);
    // Of the gradient of what ranks share each of them has a term.
    for (std::size_t d = 0; gradient && d < dims.size(); ++d)
      for (const std::string& axis : result.factors[at(dims[d])])
        if (std::find(made.dims[d].begin(), made.dims[d].end(), axis) == made.dims[d].end())
          made.partial.push_back({axis, Sharding::Reduce::sum});
    for (const std::string& axis : result.through) made.partial.push_back({axis, Sharding::Reduce::sum});
    for (std::size_t f = 0; f < result.factors.size(); ++f) {
      // What a partition function leaves to be summed it says itself.
      if (carries(dims, static_cast<int>(f)) || is_by_function(factors_.factors[f])) continue;
      for (const std::string& axis : result.factors[f])
        made.partial.push_back({axis, factors_.max_reduced ? Sharding::Reduce::max : Sharding::Reduce::sum});
    }
  }
  return result;
}

Sharding NodeRules::with_operands(const NodeSharding& way, std::size_t output, Sharding wanted,
                                  const ir::Mesh& mesh) const {
  const std::vector<int>& dims = factors_.outputs[output];
  const auto makes_terms = [&](const std::vector<int>& operand) {
    return std::any_of(operand.begin(), operand.end(), [&](int f) {
      return !carries(dims, f) && is_by_function(factors_.factors[at(f)]) && !way.factors[at(f)].empty();
    });
  };
  Axes kept;
  std::vector<bool> common(dims.size(), false);
  for (std::size_t d = 0; d < dims.size(); ++d) {
    common[d] = std::any_of(factors_.inputs.begin(), factors_.inputs.end(), [&](const std::vector<int>& operand) {
      return carries(operand, dims[d]) && !makes_terms(operand);
    });
    if (!common[d]) {
      if (!fits(dims[d], wanted.dims[d], mesh)) wanted.dims[d].clear();
      continue;
    }
    wanted.dims[d] = way.outputs[output].dims[d];
    kept.insert(kept.end(), wanted.dims[d].begin(), wanted.dims[d].end());
  }
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (!common[d])
      std::erase_if(wanted.dims[d],
                    [&](const std::string& axis) { return std::find(kept.begin(), kept.end(), axis) != kept.end(); });
  return wanted;
}

std::vector<std::string> NodeRules::sums_through(const std::vector<Sharding>& operands) const {
  std::vector<std::string> axes;
  if (node_.op->traits.linear == ir::Linear::no) return axes;
  for (const Sharding& operand : operands)
    for (const Sharding::Partial& p : operand.partial) {
      std::size_t floats = 0;
      std::size_t terms = 0;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (!inputs_[i].present || !is_float(inputs_[i].dtype)) continue;
        ++floats;
        terms += is_term(operands[i], p.axis) ? 1 : 0;
      }
      // Of a product of two one may be; a third operand would be added on every rank.
      const bool goes = node_.op->traits.linear == ir::Linear::jointly ? terms == floats : terms == 1 && floats == 2;
      if (goes && std::find(axes.begin(), axes.end(), p.axis) == axes.end()) axes.push_back(p.axis);
    }
  return axes;
}

}  // namespace trireme::passes
