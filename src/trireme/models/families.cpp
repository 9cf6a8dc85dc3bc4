#include "trireme/models/families.h"

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::models {

void Families::add(Model model) {
  if (model.name.empty()) refuse("a model family needs a name");
  if (find(model.name) != nullptr) refuse("there is a model family \"{}\" already", model.name);
  all_.push_back(std::move(model));
}

void Families::set_inputs(std::string_view name, std::vector<Input> inputs) {
  at(name);
  for (Model& model : all_)
    if (model.name == name) {
      model.inputs = std::move(inputs);
      model.images = false;
    }
}

const Model* Families::find(std::string_view name) const {
  for (const Model& model : all_)
    if (model.name == name) return &model;
  return nullptr;
}

const Model& Families::at(std::string_view name) const {
  if (const Model* model = find(name)) return *model;
  const auto near = nearest(name, names());
  refuse("family = \"{}\" is not known; {}", name,
         near ? "did you mean \"" + *near + "\"?" : fmt::format("the families are {}", fmt::join(names(), ", ")));
}

std::vector<std::string> Families::names() const {
  std::vector<std::string> names;
  for (const Model& model : all_) names.push_back(model.name);
  return names;
}

const Families& builtin_families() {
  static const Families all = [] {
    Families families;
    for (Model (*family)() : {gpt2, llama, mlp, convnet, resnet}) families.add(family());
    return families;
  }();
  return all;
}

}  // namespace trireme::models
