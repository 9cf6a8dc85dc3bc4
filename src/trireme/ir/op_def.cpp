#include "trireme/ir/op_def.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::ir {

std::vector<std::string> OpDef::missing_fields() const {
  std::vector<std::string> missing;
  const auto require = [&](bool present, const char* field) {
    if (!present) missing.emplace_back(field);
  };
  require(!name.empty(), "name");
  if (composite()) return missing;
  require(static_cast<bool>(infer), "infer");
  require(static_cast<bool>(gradient) != !no_gradient.empty(), "exactly one of gradient and no_gradient");
  require(static_cast<bool>(factors), "factors");
  require(static_cast<bool>(cost), "cost");
  require(precision_set, "precision");
  require(traits.view || traits.collective || !kernels.empty(), "kernels");
  for (const auto& [kind, kernel] : kernels) {
    require(static_cast<bool>(kernel.supports), "kernel.supports");
    require(static_cast<bool>(kernel.prepare), "kernel.prepare");
  }
  return missing;
}

bool Traits::allows_in_place(int output, int input) const {
  if (in_place_each && output == input) return true;
  return std::find(in_place.begin(), in_place.end(), std::pair(output, input)) != in_place.end();
}

void Registry::add(OpDef op) {
  const std::vector<std::string> missing = op.missing_fields();
  if (!missing.empty()) fail("op '{}' has no {}", op.name, fmt::join(missing, ", "));
  if (find(op.name) != nullptr) fail("op '{}' is registered twice", op.name);
  ops_.push_back(std::move(op));
}

const OpDef* Registry::find(std::string_view name) const {
  for (const OpDef& op : ops_)
    if (op.name == name) return &op;
  return nullptr;
}

const OpDef& Registry::at(std::string_view name) const {
  if (const OpDef* op = find(name)) return *op;
  std::vector<std::string> names;
  for (const OpDef& op : ops_) names.push_back(op.name);
  const auto near = nearest(name, names);
  fail("there is no op '{}'{}", name, near ? fmt::format("; did you mean '{}'?", *near) : "");
}

OpDef& Registry::edit(std::string_view name) { return const_cast<OpDef&>(at(name)); }

}  // namespace trireme::ir
