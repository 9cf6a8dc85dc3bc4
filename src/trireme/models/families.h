#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/models/model.h"

namespace trireme::models {

// The model families a configuration may name: an ordinary value. Users add their own to a copy.
class Families {
 public:
  // Refuses a name that is taken.
  void add(Model model);
  // Lets a family that is there read inputs by names of their own.
  void set_inputs(std::string_view name, std::vector<Input> inputs);
  const Model* find(std::string_view name) const;
  // Refuses, with the nearest name, what is not there.
  const Model& at(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  std::deque<Model> all_;
};

// The families that ship with Trireme.
const Families& builtin_families();

}  // namespace trireme::models
