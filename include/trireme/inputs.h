#pragma once
#include <trireme/export.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace trireme {

// Extents of a tensor; rows (sequences, images or samples) come first.
using Extents = std::vector<std::int64_t>;

// An input that a model reads by a name of its own: batch["price"] in the model, sample.floats("price") in the data.
struct Input {
  enum class Type { f32, i32 };
  std::string name;
  Extents shape = {};  // of one row; {}: one number
  Type type = Type::f32;
  bool whole = false;   // not by rows but the same for all rows of an update, and `shape` is all of it
  bool target = false;  // what is to be predicted: absent where predictions are asked for
};

// f32 or i32 numbers.
using InputValues = std::variant<std::vector<float>, std::vector<std::int32_t>>;
using NamedInputs = std::map<std::string, InputValues>;

// Where the inputs of one sample are written, or those that are the same for all rows of an update. They start as
// zeros. A name or type that was not declared is an Error with the nearest name; so is an input that was never asked
// for.
class TRIREME_API Sample {
 public:
  std::span<float> floats(const std::string& name);
  std::span<std::int32_t> integers(const std::string& name);

 private:
  friend struct SampleAccess;
  struct Impl;
  explicit Sample(Impl& impl) : impl_(&impl) {}
  Impl* impl_;
};

// Writes sample `number` of the data, or for inputs that are whole, those of update `number` (counted from 0; an
// evaluation after n updates asks for n). Called by several threads, each time with the same result.
using WriteInputs = std::function<void(std::int64_t number, Sample& to)>;

}  // namespace trireme
