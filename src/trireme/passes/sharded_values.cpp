#include "trireme/passes/sharded_values.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/node_sharding.h"
#include "trireme/passes/reshard.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::Node;
using ir::Sharding;
using ir::ValueId;

std::string plain_name(const ir::ValueInfo& value) {
  return value.kind == ir::ValueInfo::Kind::state ? value.name.substr(1) : value.name;
}

}  // namespace

bool is_backward(const Node& node) {
  return node.phase == ir::Phase::input_gradient || node.phase == ir::Phase::weight_gradient;
}

ShardedValues::ShardedValues(ir::Module& module, Rebuild& rebuild, const std::vector<TensorType>& whole_states,
                             const Options& options)
    : module_(module), rebuild_(rebuild), whole_states_(whole_states), options_(options) {
  forms_.resize(old().values.size());
  for (const ValueId id : old().inputs) {
    const ValueId own = rebuild_.mapped(id);
    const Sharding sharding = wanted(id);
    check_equal_parts(old().value(id).name, old().type(id), sharding);
    fresh().value(own).type = own_type(old().type(id), sharding);
    fresh().value(own).sharding = sharding;
    forms_[index(id)].push_back({own, sharding});
  }
  for (std::size_t v = 0; v < old().values.size(); ++v)
    if (old().values[v].kind == ir::ValueInfo::Kind::state) {
      const auto id = static_cast<ValueId>(v);
      const ir::State& state = module.state(old().values[v].state);
      forms_[v].push_back({rebuild_.mapped(id), canonical(state.sharding, whole_type(id), mesh())});
    }
}

TensorType ShardedValues::own_type(const TensorType& type, const Sharding& sharding) const {
  return local_type(type, sharding, mesh(), options_.places);
}

const TensorType& ShardedValues::whole_type(ValueId id) const {
  const ir::ValueInfo& value = old().value(id);
  return value.kind == ir::ValueInfo::Kind::state ? whole_states_[index(value.state)] : value.type;
}

Sharding ShardedValues::wanted(ValueId id) const { return canonical(old().value(id).sharding, whole_type(id), mesh()); }

const Sharding& ShardedValues::sharding_of(ValueId id) const { return forms_[index(id)].front().sharding; }

void ShardedValues::check_equal_parts(const std::string& name, const TensorType& type, const Sharding& sharding) const {
  for (std::size_t d = 0; d < sharding.dims.size(); ++d)
    if (const std::int64_t parts = ranks_along(sharding.dims[d], mesh());
        type.shape[static_cast<int>(d)] % parts != 0 && !ir::is_spatial(sharding.dims[d].front()))
      fail("'{}' of {} cannot be cut in {} equal parts over {}", name, type.str(), parts,
           fmt::join(sharding.dims[d], "+"));
}

ShardedValues::Readers ShardedValues::readers(ValueId id, const Node& user) const {
  const bool state = old().value(id).kind == ir::ValueInfo::Kind::state;
  return {id, is_backward(user), state ? user.stage : 0};
}

std::vector<Form> ShardedValues::available(ValueId id, const Node& user) const {
  std::vector<Form> forms = forms_[index(id)];
  if (const auto more = resharded_.find(readers(id, user)); more != resharded_.end())
    forms.insert(forms.end(), more->second.begin(), more->second.end());
  return forms;
}

std::optional<std::pair<Route, Form>> ShardedValues::cheapest(ValueId id, const Sharding& to, const Node& user) const {
  std::optional<std::pair<Route, Form>> best;
  for (const Form& form : available(id, user)) {
    const auto key = std::make_tuple(whole_type(id).str(), form.sharding.str(), to.str());
    auto known = routes_.find(key);
    if (known == routes_.end())
      known = routes_.emplace(key, cheapest_route(whole_type(id), form.sharding, to, mesh())).first;
    const std::optional<Route>& route = known->second;
    if (route && (!best || route->bytes < best->first.bytes ||
                  (route->bytes == best->first.bytes && route->steps.size() < best->first.steps.size())))
      best = {*route, form};
  }
  return best;
}

Form ShardedValues::as(ValueId id, const Sharding& to, const Node& user) {
  const Sharding goal = canonical(to, whole_type(id), mesh());
  const auto found = cheapest(id, goal, user);
  const ir::ValueInfo value = old().value(id);
  if (!found)
    fail("'{}' is needed as '{}', and it is '{}': there is no way from one to the other", value.name, goal.str(),
         sharding_of(id).str());
  Form form = found->second;
  for (const RouteStep& step : split_sums(found->first.steps, value)) {
    form.value = reshard(rebuild_, form.value, whole_type(id), form.sharding, step, mesh(), options_.places,
                         plain_name(value), user);
    const bool summed = form.sharding.partial.size() > after(form.sharding, step).partial.size();
    form.sharding = after(form.sharding, step);
    // Once terms are summed, nothing asks for them again.
    if (summed) {
      replace_terms(id, form);
    } else {
      resharded_[readers(id, user)].push_back(form);
    }
  }
  return form;
}

// The sum of gradients over the data axis is a step of its own: how it is taken is for other passes.
std::vector<RouteStep> ShardedValues::split_sums(const std::vector<RouteStep>& steps,
                                                 const ir::ValueInfo& value) const {
  if (value.kind != ir::ValueInfo::Kind::state) return steps;
  std::vector<RouteStep> split_steps;
  for (const RouteStep& step : steps) {
    if (step.kind != RouteStep::Kind::all_reduce) {
      split_steps.push_back(step);
      continue;
    }
    std::vector<std::string> axes = split(step.axis, '+');
    if (options_.replicas_last)
      std::stable_partition(axes.begin(), axes.end(), [](const std::string& axis) { return axis != ir::kDataAxis; });
    for (const std::string& axis : axes) {
      split_steps.push_back(step);
      split_steps.back().axis = axis;
    }
  }
  return split_steps;
}

void ShardedValues::replace_terms(ValueId id, const Form& form) {
  const ir::ValueInfo& value = old().value(id);
  // A step-local accumulator is reduced in place; nothing reads the local sum afterwards.
  if (value.kind == ir::ValueInfo::Kind::state && module_.state(value.state).step_local &&
      form.sharding.partial.empty() && fresh().type(form.value) == module_.state(value.state).type)
    in_place_.emplace_back(value.state, form.value);
  forms_[index(id)] = {form};
}

void ShardedValues::made(ValueId id, ValueId value, const Sharding& sharding) {
  const Sharding own = canonical(sharding, old().type(id), mesh());
  fresh().value(value).sharding = own;
  rebuild_.map(id, value);
  forms_[index(id)] = {{value, own}};
}

void settle_phases(ir::Graph& graph) {
  const ir::Uses uses(graph);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (node->phase != ir::Phase::weight_gradient) continue;
    const auto needed_early = [&](std::int32_t reader) {
      const Node& r = graph.nodes[index(reader)];
      return r.phase == ir::Phase::input_gradient || r.stage != node->stage;
    };
    const auto any_reader = [&](ValueId id) {
      const auto& readers = uses.consumers[index(id)];
      return std::any_of(readers.begin(), readers.end(), needed_early);
    };
    if (std::any_of(node->outputs.begin(), node->outputs.end(), any_reader)) node->phase = ir::Phase::input_gradient;
  }
}

}  // namespace trireme::passes
