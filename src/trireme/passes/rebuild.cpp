#include "trireme/passes/rebuild.h"

#include <array>

#include "trireme/core/error.h"

namespace trireme::passes {

using ir::kNone;
using ir::ValueId;

Rebuild::Rebuild(ir::Module& module, const std::string& graph)
    : module_(module), old_(module.graph(graph)), map_(old_.values.size(), kNone) {
  fresh_.name = old_.name;
  for (const ValueId id : old_.inputs) {
    map(id, fresh_.add_input(old_.value(id).name, old_.type(id)));
    fresh_.value(mapped(id)).sharding = old_.value(id).sharding;
  }
  for (std::size_t i = 0; i < old_.values.size(); ++i)
    if (old_.values[i].kind == ir::ValueInfo::Kind::state)
      map(static_cast<ValueId>(i), fresh_.read(module_, old_.values[i].state));
}

ValueId Rebuild::mapped(ValueId old) const {
  if (old == kNone) return kNone;
  const ValueId fresh = map_[static_cast<std::size_t>(old)];
  TRI_CHECK(fresh != kNone, "'{}' is used before it is rebuilt", old_.value(old).name);
  return fresh;
}

std::vector<ValueId> Rebuild::mapped(const std::vector<ValueId>& old) const {
  std::vector<ValueId> fresh;
  fresh.reserve(old.size());
  for (const ValueId id : old) fresh.push_back(mapped(id));
  return fresh;
}

void Rebuild::map(ValueId old, ValueId fresh) { map_[static_cast<std::size_t>(old)] = fresh; }

std::vector<ValueId> Rebuild::add(const std::string& op, std::vector<ValueId> inputs, ir::Attributes attributes,
                                  const std::string& label, const ir::Node& like) {
  return fresh_.add(module_.registry->at(op), std::move(inputs), std::move(attributes), label, like.phase, like.stage);
}

std::vector<ValueId> Rebuild::add_like(const ir::Node& node, std::vector<ValueId> inputs,
                                       const ir::Attributes& changed) {
  ir::Attributes attributes = node.attributes;
  for (const auto& [name, value] : changed) attributes.set(name, value);
  std::vector<ValueId> outputs = fresh_.add(*node.op, std::move(inputs), std::move(attributes),
                                            old_.value(node.outputs.front()).name, node.phase, node.stage);
  fresh_.nodes.back().barrier = node.barrier;
  fresh_.nodes.back().on_host = node.on_host;
  for (std::size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i) {
    map(node.outputs[i], outputs[i]);
    // By its own name ranks of other roles know each of the values that a collective makes.
    if (const std::string& name = old_.value(node.outputs[i]).name;
        node.op->traits.collective && fresh_.value(outputs[i]).name != name)
      fresh_.rename(std::array{outputs[i]}, std::array{name});
    if (fresh_.type(outputs[i]).shape.rank() == old_.type(node.outputs[i]).shape.rank())
      fresh_.value(outputs[i]).sharding = old_.value(node.outputs[i]).sharding;
  }
  return outputs;
}

void Rebuild::finish() {
  for (const ir::Write& write : old_.writes) fresh_.writes.push_back({write.state, mapped(write.value), write.mode});
  for (const ir::Output& output : old_.outputs) fresh_.outputs.push_back({output.name, mapped(output.value)});
  module_.graph(old_.name) = std::move(fresh_);
}

}  // namespace trireme::passes
