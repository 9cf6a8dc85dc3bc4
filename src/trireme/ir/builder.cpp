#include "trireme/ir/builder.h"

#include "trireme/core/error.h"

namespace trireme::ir {

TensorType Value::type() const {
  return id_ == kNone ? TensorType::none() : site_->module->graph(site_->graph).type(id_);
}

std::vector<Value> apply(const std::string& op_name, std::vector<Value> inputs, Attributes attributes,
                         const std::string& scope) {
  const Value* anchor = nullptr;
  std::vector<ValueId> ids;
  for (const Value& v : inputs) {
    if (v && anchor == nullptr) anchor = &v;
    ids.push_back(v.id());
  }
  TRI_CHECK(anchor != nullptr, "{} needs at least one operand to know its graph", op_name);
  const Site& site = *anchor->site();
  const std::string path = scope.empty() ? anchor->scope() : scope;
  const OpDef& op = site.module->registry->at(op_name);
  if (op.composite()) {
    check_operands(op, ids);
    complete_attributes(op, attributes);
    for (Value& v : inputs)
      if (v) v = Value(v.site(), path, v.id());
    return op.compose(inputs, attributes);
  }
  const std::string label = path.empty() ? op_name : path + "." + op_name;
  std::vector<Value> outputs;
  for (const ValueId id :
       site.module->graph(site.graph).add(op, std::move(ids), std::move(attributes), label, site.phase))
    outputs.emplace_back(anchor->site(), path, id);
  return outputs;
}

Value apply1(const std::string& op, std::vector<Value> inputs, Attributes attributes, const std::string& scope) {
  return apply(op, std::move(inputs), std::move(attributes), scope).front();
}

Builder::Builder(Module& module, std::string graph)
    : site_(std::make_shared<Site>(Site{&module, std::move(graph), Phase::forward})) {
  if (!module.has_graph(site_->graph)) module.add_graph(site_->graph);
}

Builder Builder::scope(const std::string& name) const {
  Builder inner = *this;
  inner.path_ = qualified(name);
  return inner;
}

Builder Builder::scope(const std::string& name, int index) const { return scope(name + "." + std::to_string(index)); }

Value Builder::trained_state(const std::string& name, const Shape& shape, Init init, bool decayed) const {
  State wanted;
  wanted.name = qualified(name);
  wanted.type = {DType::f32, shape};
  wanted.init = init;
  wanted.trained = true;
  wanted.decayed = decayed;
  return read_or_add(wanted);
}

Value Builder::read_or_add(const State& wanted) const {
  StateId id = module().find_state(wanted.name);
  if (id == kNone)
    id = module().add_state(wanted);
  else if (module().state(id).type != wanted.type)
    fail("state '{}' is asked for as {} and as {}", wanted.name, module().state(id).type.str(), wanted.type.str());
  return wrap(graph().read(module(), id));
}

Value Builder::parameter(const std::string& name, const Shape& shape, Init init) const {
  return trained_state(name, shape, init, shape.rank() >= 2);
}

Value Builder::bias(const std::string& name, const Shape& shape) const { return trained_state(name, shape, {}, false); }

Value Builder::state(const std::string& name, const TensorType& type, Category category, Init init) const {
  State wanted;
  wanted.name = qualified(name);
  wanted.type = type;
  wanted.category = category;
  wanted.init = init;
  return read_or_add(wanted);
}

void Builder::write(const Value& state, const Value& value) const {
  TRI_CHECK(state && value, "write needs a state and a value");
  const ValueInfo& info = graph().value(state.id());
  TRI_CHECK(info.kind == ValueInfo::Kind::state, "'{}' is not a state variable", info.name);
  graph().writes.push_back({info.state, value.id(), Write::Mode::set});
}

Value Builder::input(const std::string& name, const TensorType& type) const {
  const auto existing = graph().find_input(name);
  if (!existing) return wrap(graph().add_input(name, type));
  if (graph().type(*existing) != type)
    fail("input '{}' is asked for as {} and as {}", name, graph().type(*existing).str(), type.str());
  return wrap(*existing);
}

Value Builder::constant(double value, const TensorType& type) const {
  const OpDef& fill = module().registry->at("fill");
  const std::vector<std::int64_t> dims(type.shape.begin(), type.shape.end());
  const auto ids =
      graph().add(fill, {}, {{"value", value}, {"shape", dims}, {"dtype", std::string(name_of(type.dtype))}},
                  qualified("constant"), site_->phase);
  return wrap(ids.front());
}

Value Builder::here(const Value& value) const { return wrap(value.id()); }

void Builder::output(const std::string& name, const Value& value) const {
  check_name(name, "output");
  TRI_CHECK(value, "output '{}' has no value", name);
  if (graph().find_output(name)) fail("graph '{}' has an output '{}' already", graph().name, name);
  graph().outputs.push_back({name, value.id()});
}

void Builder::accumulate(const std::string& name, const Value& value) const {
  StateId id = module().find_state(name);
  if (id == kNone) {
    State sum;
    sum.name = name;
    sum.type = {DType::f32, value.shape()};
    sum.category = Category::scalars;
    sum.saved = false;
    sum.step_local = true;
    id = module().add_state(sum);
  }
  graph().writes.push_back({id, value.id(), Write::Mode::add});
}

GradientContext::GradientContext(Module& module, std::string graph, std::size_t node, std::vector<Value> grads,
                                 std::vector<bool> needs)
    : site_(std::make_shared<Site>(Site{&module, std::move(graph), Phase::input_gradient})),
      node_(node),
      grads_(std::move(grads)),
      needs_(std::move(needs)),
      result_(needs_.size()) {
  // Gradient nodes are named after the forward node's first output: "blocks.0.up.matmul" gives "blocks.0.up.grad.…".
  const std::string& name = this->graph().value(this->node().outputs.front()).name;
  const std::size_t dot = name.rfind('.');
  scope_ = (dot == std::string::npos ? "" : name.substr(0, dot) + ".") + "grad";
  for (Value& g : grads_)
    if (g) g = Value(site_, scope_, g.id());
}

Value GradientContext::input(std::size_t i) const { return {site_, scope_, node().inputs[i]}; }
Value GradientContext::output(std::size_t i) const { return {site_, scope_, node().outputs[i]}; }
const Attributes& GradientContext::attributes() const { return node().attributes; }

void GradientContext::extend_forward(const Attributes& changed) {
  // `extend` may grow `values`, never `nodes`, so the reference stays valid.
  graph().extend(graph().nodes[node_], changed);
}

void GradientContext::add_operand(std::size_t input, const Value& value) {
  ValueId& operand = graph().nodes[node_].inputs.at(input);
  TRI_CHECK(operand == kNone, "operand {} of {} is there already", input, node().op->name);
  TRI_CHECK(is_given(value), "the forward phase does not know '{}'", graph().value(value.id()).name);
  operand = value.id();
}

bool GradientContext::is_given(const Value& value) const {
  return value && graph().value(value.id()).kind != ValueInfo::Kind::node;
}

bool GradientContext::is_one(const Value& value) const {
  if (!value) return false;
  for (const Node& n : graph().nodes)
    if (n.op->name == "fill" && n.outputs.front() == value.id()) return n.attributes.real("value") == 1.0;
  return false;
}

Value GradientContext::zeros(const TensorType& type) const {
  const std::vector<std::int64_t> dims(type.shape.begin(), type.shape.end());
  const OpDef& fill = site_->module->registry->at("fill");
  const auto ids = graph().add(fill, {}, {{"value", 0.0}, {"shape", dims}, {"dtype", std::string(name_of(type.dtype))}},
                               scope_ + ".zeros", site_->phase);
  return {site_, scope_, ids.front()};
}

}  // namespace trireme::ir
