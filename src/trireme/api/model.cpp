#include <trireme/model.h>

#include "trireme/api/access.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {

const ir::Builder& Access::unwrap(const Builder& handle) {
  if (!handle.impl_) fail("this Builder was not given to a model, so it has no place to build");
  return handle.impl_->builder;
}

Extents Value::shape() const {
  if (!impl_)
    refuse(
        "the shape of an absent value was asked for: a batch of text has no images, one of images no tokens, and a "
        "prediction is asked for without targets");
  const Shape shape = Access::unwrap(*this).shape();
  return {shape.begin(), shape.end()};
}

Value Batch::operator[](const std::string& name) const {
  const auto found = inputs.find(name);
  if (found != inputs.end()) return found->second;
  if (inputs.empty())
    refuse("the model asks for an input '{}', and its data have no inputs by names of their own; see own_inputs", name);
  std::vector<std::string> names;
  for (const auto& [other, value] : inputs) names.push_back(other);
  const auto near = nearest(name, names);
  refuse("the model asks for an input '{}', which its data do not have; {}", name,
         near ? "did you mean '" + *near + "'?" : fmt::format("they have {}", fmt::join(names, ", ")));
}

const ir::Builder& Access::take(const Builder& handle, const char* layer) {
  const ir::Builder& builder = unwrap(handle);
  if (!handle.impl_->taken->insert(builder.path()).second && !handle.impl_->shared)
    refuse(
        "{} in scope '{}': another layer has its parameters there; give each layer a scope of its own, or share on "
        "purpose with scope(…).shared()",
        layer, builder.path());
  return builder;
}

const ir::Builder& Access::take_alone(const Builder& handle, const char* layer) {
  const ir::Builder& builder = unwrap(handle);
  if (handle.impl_->shared && handle.impl_->taken->contains(builder.path()))
    refuse(
        "{} in scope '{}': the running statistics there are another layer's, and two layers cannot both update them; "
        "give each a scope of its own, or share a norm that has none, as layer_norm and rms_norm",
        layer, builder.path());
  return take(handle, layer);
}

Builder Builder::scope(const std::string& name) const {
  return Access::moved(*this, Access::unwrap(*this).scope(name));
}

Builder Builder::scope(const std::string& name, int index) const {
  return Access::moved(*this, Access::unwrap(*this).scope(name, index));
}

Builder Builder::shared() const {
  Access::unwrap(*this);
  return Access::shared(*this);
}

Value Builder::parameter(const std::string& name, const Extents& shape, Init init) const {
  ir::Init start;
  switch (init.kind) {
    case Init::Kind::zeros: break;
    case Init::Kind::constant: start = ir::Init::constant(init.value); break;
    case Init::Kind::normal: start = ir::Init::normal(init.value); break;
    case Init::Kind::uniform: start = ir::Init::uniform(init.value); break;
  }
  return Access::wrap(Access::unwrap(*this).parameter(name, Shape(shape), start));
}

Value Builder::here(const Value& value) const {
  return value ? Access::wrap(Access::unwrap(*this).here(Access::unwrap(value))) : value;
}

bool Builder::training() const { return Access::unwrap(*this).training; }

models::Model adapt(const std::string& family, std::function<Model(const ModelConfig&)> make, Reads reads) {
  models::Model model;
  model.name = family;
  model.images = reads == Reads::images;
  model.resolve = [](ModelConfig&, const OptionNames&) {};
  model.build = [family, make = std::move(make)](const ir::Builder& b, const models::Batch& in, const ModelConfig& c) {
    Builder builder = Access::wrap(b);
    Batch batch{Access::wrap(in.tokens), Access::wrap(in.targets), Access::wrap(in.images), Access::wrap(in.labels)};
    for (const auto& [name, value] : in.inputs) batch.inputs[name] = Access::wrap(value);
    const bool judged = in.inputs.empty() ? batch.targets || batch.labels : !in.predicting;
    batch.predicting = !judged;
    ir::Value result = Access::unwrap(make(c)(builder, batch));
    if (!result) refuse("the model \"{}\" gives nothing", family);
    if (judged && result.shape().rank() != 0)
      refuse("the model \"{}\" must give its loss, a scalar, when {}; it gives {}", family,
             in.inputs.empty() ? "the batch has targets" : "it is not asked for predictions", result.type().str());
    if (!judged && batch.tokens && (result.shape().rank() != 3 || result.dtype() == DType::i32))
      refuse("the model \"{}\" must give logits [rows, context, vocab] when the batch has no targets; it gives {}",
             family, result.type().str());
    if (!judged && result.dtype() == DType::i32)
      refuse("the model \"{}\" must predict f32 values; it gives {}", family, result.type().str());
    return result;
  };
  return model;
}

}  // namespace trireme
