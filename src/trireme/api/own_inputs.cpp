#include "trireme/api/own_inputs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "trireme/api/own_data.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {

// One of the rows of a batch, or what its rows have in common.
struct Sample::Impl {
  const std::vector<Input>& inputs;
  const std::vector<std::size_t>& sizes;
  data::Batch& batch;
  std::size_t row;
  bool whole;
  const char* what;  // "sample" or "update", and which
  std::int64_t number;
  std::uint64_t written = 0;  // a bit for each input

  std::string where() const { return fmt::format("{} {}", what, number); }
};

struct SampleAccess {
  using Impl = Sample::Impl;
  static Sample make(Sample::Impl& impl) { return Sample(impl); }

  // The numbers of an input, which is of the type of `member`.
  template <class T>
  static std::span<T> find(Sample::Impl& impl, const std::string& name, std::vector<T> data::NamedRows::*member,
                           Input::Type type) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < impl.inputs.size(); ++i) {
      const Input& input = impl.inputs[i];
      if (input.name != name) {
        if (input.whole == impl.whole) names.push_back(input.name);
        continue;
      }
      if (input.type != type)
        fail("{}: the input '{}' is {}", impl.where(), name,
             type == Input::Type::f32 ? "i32: write its integers" : "f32: write its floats");
      if (input.whole != impl.whole)
        fail("{}: the input '{}' is {}", impl.where(), name,
             input.whole ? "the same for all rows: OwnInputOptions::whole writes it"
                         : "written for each sample, not once for all rows");
      impl.written |= std::uint64_t{1} << i;
      return std::span(impl.batch.inputs[i].*member).subspan(impl.row * impl.sizes[i], impl.sizes[i]);
    }
    const auto near = nearest(name, names);
    fail("{}: there is no input '{}'; {}", impl.where(), name,
         near ? "did you mean '" + *near + "'?" : fmt::format("there are {}", fmt::join(names, ", ")));
  }
};

std::span<float> Sample::floats(const std::string& name) {
  return SampleAccess::find(*impl_, name, &data::NamedRows::floats, Input::Type::f32);
}

std::span<std::int32_t> Sample::integers(const std::string& name) {
  return SampleAccess::find(*impl_, name, &data::NamedRows::integers, Input::Type::i32);
}

namespace {

std::size_t elements(const Extents& shape) { return static_cast<std::size_t>(Shape(shape).elements()); }

class OwnInputs final : public data::Dataset {
 public:
  OwnInputs(const Data& data, std::int64_t first, std::int64_t last)
      : own_(data.own), first_(first), count_(last - first) {
    for (const Input& input : own_->inputs) sizes_.push_back(elements(input.shape));
  }

  std::int64_t samples() const override { return count_; }
  std::int64_t tokens_per_sample() const override { return 1; }
  // Both halves share it; the first counts it.
  data::DataMemory memory() const override { return {.held = first_ == 0 ? own_->held : 0}; }

  void resize(data::Batch& batch, std::int64_t rows) const override {
    batch.inputs.resize(own_->inputs.size());
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      const Input& input = own_->inputs[i];
      data::NamedRows& values = batch.inputs[i];
      values.name = input.name;
      values.whole = input.whole;
      const std::size_t size = sizes_[i] * (input.whole ? 1 : static_cast<std::size_t>(rows));
      values.floats.resize(input.type == Input::Type::f32 ? size : 0);
      values.integers.resize(input.type == Input::Type::i32 ? size : 0);
    }
  }

  void read_common(data::Batch& batch) const override {
    if (own_->write_whole) write(batch, 0, true, batch.step, own_->write_whole, "update");
  }

  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    write(batch, static_cast<std::size_t>(row), false, first_ + sample, own_->write, "sample");
  }

 private:
  void write(data::Batch& batch, std::size_t row, bool whole, std::int64_t number, const WriteInputs& function,
             const char* what) const {
    SampleAccess::Impl impl{own_->inputs, sizes_, batch, row, whole, what, number};
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (own_->inputs[i].whole != whole) continue;
      const auto clear = [&](auto& values) {
        if (!values.empty()) std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(row * sizes_[i]), sizes_[i], 0);
      };
      clear(batch.inputs[i].floats);
      clear(batch.inputs[i].integers);
    }
    Sample to = SampleAccess::make(impl);
    function(number, to);
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      if (own_->inputs[i].whole == whole && (impl.written >> i & 1) == 0)
        fail("{}: nothing was written to the input '{}'", impl.where(), own_->inputs[i].name);
  }

  std::shared_ptr<const OwnSamples> own_;
  std::int64_t first_;
  std::int64_t count_;
  std::vector<std::size_t> sizes_;  // elements of a row, by input
};

// Names that programs have inputs of already.
constexpr std::array<std::string_view, 10> kTaken = {"tokens", "targets", "images", "labels", "rng",
                                                     "seed",   "lr",      "step",   "row",    "position"};

void check_name(const std::string& name, const std::vector<models::Input>& before) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0 ||
      !std::all_of(name.begin(), name.end(), plain))
    refuse("an input cannot be named '{}': a name is of letters, digits and _, and begins with no digit", name);
  if (std::find(kTaken.begin(), kTaken.end(), name) != kTaken.end())
    refuse("an input cannot be named '{}', which programs have already; for example '{}_in' can", name, name);
  for (const models::Input& other : before)
    if (other.name == name) refuse("there are two inputs of the name '{}'", name);
}

}  // namespace

std::shared_ptr<const data::Dataset> open_inputs(const Data& data, std::int64_t first, std::int64_t last) {
  return std::make_shared<OwnInputs>(data, first, last);
}

std::vector<models::Input> inputs_of(const Data& data) {
  const OwnSamples& own = *data.own;
  constexpr std::size_t kMax = std::numeric_limits<std::uint64_t>::digits;
  if (own.inputs.empty()) refuse("own_inputs: there are no inputs");
  if (own.inputs.size() > kMax) refuse("own_inputs: {} inputs are more than {}", own.inputs.size(), kMax);
  std::vector<models::Input> all;
  for (const Input& input : own.inputs) {
    check_name(input.name, all);
    if (std::ssize(input.shape) >= Shape::kMaxRank)
      refuse("the input '{}' has {} dimensions; {} are the most", input.name, input.shape.size(), Shape::kMaxRank - 1);
    if (std::any_of(input.shape.begin(), input.shape.end(), [](std::int64_t extent) { return extent < 1; }))
      refuse("the input '{}' has the shape {}; every extent must be at least 1", input.name, Shape(input.shape).str());
    if (input.whole && !own.write_whole)
      refuse("the input '{}' is the same for all rows: OwnInputOptions::whole must write it", input.name);
    all.push_back({.name = input.name,
                   .row = {input.type == Input::Type::f32 ? DType::f32 : DType::i32, Shape(input.shape)},
                   .whole = input.whole,
                   .target = input.target});
  }
  if (std::all_of(all.begin(), all.end(), [](const models::Input& input) { return input.whole; }))
    refuse("own_inputs: all inputs are the same for all rows; one at least must go by rows");
  return all;
}

data::Batch one_row(const std::vector<models::Input>& inputs, const NamedInputs& values,
                    const std::function<bool(const std::string& name)>& is_read) {
  std::vector<std::string> names;
  for (const models::Input& input : inputs)
    if (!input.target) names.push_back(input.name);
  for (const auto& [name, given] : values)
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const auto near = nearest(name, names);
      refuse("forward_inputs: there is no input '{}' that predictions are made from; {}", name,
             near ? "did you mean '" + *near + "'?" : fmt::format("there are {}", fmt::join(names, ", ")));
    }
  data::Batch batch;
  batch.rows = 1;
  for (const models::Input& input : inputs) {
    if (input.target) continue;
    const auto found = values.find(input.name);
    data::NamedRows& row = batch.inputs.emplace_back();
    row.name = input.name;
    row.whole = input.whole;
    if (found == values.end()) {
      if (is_read(input.name)) refuse("forward_inputs: the input '{}', {}, is missing", input.name, input.row.str());
      const auto elements = static_cast<std::size_t>(input.row.elements());
      if (is_float(input.row.dtype))
        row.floats.assign(elements, 0);
      else
        row.integers.assign(elements, 0);
      continue;
    }
    const auto take = [&]<class T>(std::vector<T>& to, DType type) {
      const auto* given = std::get_if<std::vector<T>>(&found->second);
      if (given == nullptr) return;
      if (input.row.dtype != type) refuse("forward_inputs: the input '{}' is {}", input.name, input.row.str());
      if (std::ssize(*given) != input.row.elements())
        refuse("forward_inputs: the input '{}' is {}, which are {} numbers, got {}", input.name, input.row.str(),
               input.row.elements(), given->size());
      to = *given;
    };
    take(row.floats, DType::f32);
    take(row.integers, DType::i32);
  }
  return batch;
}

Data own_inputs(std::int64_t samples, std::vector<Input> inputs, WriteInputs write, OwnInputOptions options) {
  Data data;
  data.kind = Data::Kind::inputs;
  data.files = {};
  data.context = 1;
  data.order = std::move(options.order);
  data.holdout = options.holdout;
  OwnSamples own{.samples = samples};
  own.inputs = std::move(inputs);
  own.write = std::move(write);
  own.write_whole = std::move(options.whole);
  data.own = std::make_shared<const OwnSamples>(std::move(own));
  return data;
}

Data inputs_in_memory(std::vector<InputInMemory> given, OwnInputOptions options) {
  std::vector<Input> inputs;
  std::int64_t samples = -1;
  std::string first;  // by rows
  std::uint64_t bytes = 0;
  bool any_whole = false;
  for (const InputInMemory& input : given) {
    const bool floats = std::holds_alternative<std::vector<float>>(input.values);
    inputs.push_back(
        {input.name, input.shape, floats ? Input::Type::f32 : Input::Type::i32, input.whole, input.target});
    const std::size_t size = std::visit([](const auto& values) { return values.size(); }, input.values);
    bytes += size * sizeof(float);
    const std::size_t each = elements(input.shape);
    if (each == 0) continue;  // inputs_of refuses it
    if (input.whole ? size != each : size % each != 0)
      refuse("the input '{}' has {} values, and {} of the shape {} has {}", input.name, size,
             input.whole ? "the whole" : "each row", Shape(input.shape).str(), each);
    any_whole = any_whole || input.whole;
    if (input.whole) continue;
    const auto rows = static_cast<std::int64_t>(size / each);
    if (samples >= 0 && rows != samples)
      refuse("the input '{}' has {} rows, and '{}' has {}", input.name, rows, first, samples);
    if (samples < 0) first = input.name;
    samples = rows;
  }
  const auto kept = std::make_shared<const std::vector<InputInMemory>>(std::move(given));
  const auto copy = [kept](bool whole) {
    return [kept, whole](std::int64_t number, Sample& to) {
      for (const InputInMemory& input : *kept) {
        if (input.whole != whole) continue;
        const auto write = [&](const auto& values, auto out) {
          std::copy_n(values.begin() + (whole ? 0 : number * std::ssize(out)), out.size(), out.begin());
        };
        if (const auto* floats = std::get_if<std::vector<float>>(&input.values))
          write(*floats, to.floats(input.name));
        else
          write(std::get<std::vector<std::int32_t>>(input.values), to.integers(input.name));
      }
    };
  };
  if (any_whole) options.whole = copy(true);
  Data data = own_inputs(std::max<std::int64_t>(0, samples), std::move(inputs), copy(false), std::move(options));
  OwnSamples own = *data.own;
  own.held = bytes;
  data.own = std::make_shared<const OwnSamples>(std::move(own));
  return data;
}

}  // namespace trireme
