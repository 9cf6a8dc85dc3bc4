#include "trireme/passes/compress_activations.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/quantize/quantize_int8.h"
#include "trireme/passes/saved_values.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::ValueId;

bool smaller(const TensorType& type, CompressActivations::Kind kind) {
  if (kind == CompressActivations::Kind::bf16) return type.dtype == DType::f32;
  if (type.dtype != DType::f32 && type.dtype != DType::bf16 && type.dtype != DType::f16) return false;
  if (type.shape.rank() == 0) return false;
  const auto elements = static_cast<std::size_t>(type.elements());
  return elements + ops::int8_scales(type, ops::kInt8Block).bytes() < type.bytes();
}

// Over all of an axis, whose name its parts begin with. What a partition function made in between says nothing of its
// sharding: it may be a rank's own.
bool is_replicated(const ir::ValueInfo& value, const std::string& axis) {
  const ir::Sharding& sharding = value.sharding;
  if (std::ssize(sharding.dims) != value.type.shape.rank()) return false;
  const auto is_part = [&](const std::string& part) { return ir::axis_of_part(part) == axis; };
  const auto has = [&](const std::vector<std::string>& axes) { return std::any_of(axes.begin(), axes.end(), is_part); };
  return std::none_of(sharding.dims.begin(), sharding.dims.end(), has) &&
         std::none_of(sharding.partial.begin(), sharding.partial.end(),
                      [&](const ir::Sharding::Partial& partial) { return is_part(partial.axis); });
}

class Compressor {
 public:
  Compressor(Module& module, const CompressActivations::Options& options)
      : module_(module),
        kind_(options.kind),
        axis_(options.axis),
        parts_(ir::parts_of(module.mesh, options.axis)),
        ranks_(kind_ == CompressActivations::Kind::sharded ? module.mesh.size_of(joined()) : 1),
        g_(module.graph(options.graph)),
        storage_(storage_of(g_)),
        producer_(ir::Uses(g_).producer),
        kept_(g_.values.size()),
        expanded_(g_.values.size(), kNone),
        compressed_after_(g_.nodes.size()) {}

  // How many values are kept smaller.
  std::size_t run() {
    choose();
    std::vector<Node> old = std::move(g_.nodes);
    for (std::size_t n = 0; n < old.size(); ++n) {
      Node node = old[n];
      if (is_gradient(node.phase))
        for (ValueId& id : node.inputs) id = for_gradients(id, old, node);
      result_.push_back(std::move(node));
      for (const ValueId value : compressed_after_[n]) compress(value, old[n]);
    }
    g_.nodes = std::move(result_);
    return chosen_;
  }

 private:
  // What stays of a value between the two phases.
  struct Kept {
    bool compressed = false;
    Phase phase = Phase::weight_gradient;  // of the expansion: the earliest that reads it
    std::vector<ValueId> parts;
  };

  void choose() {
    std::vector<bool> escapes(g_.values.size(), false);
    for (const ir::Write& write : g_.writes) escapes[index(storage_[index(write.value)])] = true;
    for (const ir::Output& output : g_.outputs) escapes[index(storage_[index(output.value)])] = true;
    std::int32_t end = 0;
    for (std::size_t n = 0; n < g_.nodes.size(); ++n)
      if (g_.nodes[n].phase == Phase::forward && !g_.nodes[n].op->traits.view) end = static_cast<std::int32_t>(n);
    for (const SavedValue& saved : saved_values(g_)) {
      if (escapes[index(saved.value)] || saved.last_forward >= end) continue;
      if (!can_be_smaller(saved)) continue;
      kept_[index(saved.value)].compressed = true;
      compressed_after_[index(saved.last_forward)].push_back(saved.value);
      ++chosen_;
    }
    for (const Node& node : g_.nodes)
      if (node.phase == Phase::input_gradient)
        for (const ValueId id : node.inputs)
          if (id != kNone) kept_[index(storage_[index(id)])].phase = Phase::input_gradient;
  }

  bool can_be_smaller(const SavedValue& saved) const {
    const TensorType& type = g_.type(saved.value);
    if (kind_ != CompressActivations::Kind::sharded) return smaller(type, kind_) && !wanted_exact(saved);
    return ranks_ > 1 && type.elements() % ranks_ == 0 && is_replicated(g_.value(saved.value), axis_);
  }

  bool wanted_exact(const SavedValue& saved) const {
    return std::any_of(saved.readers.begin(), saved.readers.end(), [&](std::int32_t reader) {
      const Node& node = g_.nodes[index(reader)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ir::OperandSpec& operand = node.op->operands[std::min(i, node.op->operands.size() - 1)];
        const ValueId id = node.inputs[i];
        if (id != kNone && storage_[index(id)] == saved.value && operand.keep_f32) return true;
      }
      return false;
    });
  }

  std::vector<ValueId> add(const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                           const std::string& name, Phase phase, std::int32_t stage) {
    result_.push_back(
        g_.make_node(module_.registry->at(op), std::move(inputs), std::move(attributes), name, phase, stage));
    return result_.back().outputs;
  }

  void compress(ValueId value, const Node& last) {
    const std::string name = g_.value(value).name;
    if (kind_ == CompressActivations::Kind::sharded) return keep_own(value, name, last);
    kept_[index(value)].parts =
        kind_ == CompressActivations::Kind::bf16
            ? add("cast", {value}, {{"to", std::string("bf16")}}, name + ".bf16", Phase::forward, last.stage)
            : add("quantize_int8", {value}, {}, name + ".int8", Phase::forward, last.stage);
    for (const ValueId part : kept_[index(value)].parts) g_.value(part).sharding = g_.value(value).sharding;
  }

  std::string joined() const { return fmt::format("{}", fmt::join(parts_, "+")); }
  ir::Attributes over(const std::string& axes) const {
    return {{"axis", axes}, {"parts", static_cast<std::int64_t>(module_.mesh.size_of(axes))}};
  }

  // A copy of this rank's part: the value itself goes.
  void keep_own(ValueId value, const std::string& name, const Node& last) {
    const auto add_one = [&](const char* op, ValueId x, ir::Attributes attributes) {
      return add(op, {x}, std::move(attributes), name + ".own", Phase::forward, last.stage).front();
    };
    ValueId own = value;
    for (const std::string& part : parts_) {
      const std::int64_t ranks = module_.mesh.size_of(part);
      const std::vector<std::int64_t> rows = {ranks, g_.type(own).elements() / ranks};
      own = add_one(ops::kOwnRows.data(), add_one("reshape", own, {{"shape", rows}}), over(part));
      own = add_one("concat", own, {{"dim", std::int64_t{0}}});
    }
    kept_[index(value)].parts = {own};
  }

  ValueId gather(ValueId value, const Kept& kept, const std::string& name, const Node& reader) {
    ir::Attributes attributes = over(joined());
    attributes.set("rows", std::vector<std::int64_t>{ranks_});
    const ValueId rows = add(ops::kAllGather.data(), kept.parts, attributes, name, kept.phase, reader.stage).front();
    const Shape& shape = g_.type(value).shape;
    return add("reshape", {rows}, {{"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}}, name, kept.phase,
               reader.stage)
        .front();
  }

  // What a gradient node reads in place of `id`: the expansion of the bytes that it is, or a view of that.
  ValueId for_gradients(ValueId id, const std::vector<Node>& old, const Node& reader) {
    if (id == kNone || !kept_[index(storage_[index(id)])].compressed) return id;
    const Node& made = old[index(producer_[index(id)])];
    if (is_gradient(made.phase)) return id;  // a view whose own input is replaced
    ValueId& fresh = expanded_[index(id)];
    if (fresh != kNone) return fresh;
    const Kept& kept = kept_[index(storage_[index(id)])];
    if (storage_[index(id)] == id) {
      fresh = expand(id, kept, reader);
    } else {
      const ValueId source = for_gradients(made.inputs.front(), old, reader);
      fresh =
          add(made.op->name.c_str(), {source}, made.attributes, g_.value(id).name + ".kept", kept.phase, reader.stage)
              .front();
    }
    g_.value(fresh).sharding = g_.value(id).sharding;
    return fresh;
  }

  ValueId expand(ValueId value, const Kept& kept, const Node& reader) {
    const std::string name = g_.value(value).name + ".kept";
    if (kind_ == CompressActivations::Kind::sharded) return gather(value, kept, name, reader);
    const std::string to = name_of(g_.type(value).dtype);
    const char* op = kind_ == CompressActivations::Kind::bf16 ? "cast" : "dequantize_int8";
    return add(op, kept.parts, {{"to", to}}, name, kept.phase, reader.stage).front();
  }

  Module& module_;
  CompressActivations::Kind kind_;
  std::string axis_;
  std::vector<std::string> parts_;  // of the axis, in the mesh
  std::int64_t ranks_;
  Graph& g_;
  std::vector<ValueId> storage_;
  std::vector<std::int32_t> producer_;
  std::vector<Kept> kept_;                              // by value
  std::vector<ValueId> expanded_;                       // by value of the old graph
  std::vector<std::vector<ValueId>> compressed_after_;  // by node of the old graph
  std::vector<Node> result_;
  std::size_t chosen_ = 0;
};

}  // namespace

void CompressActivations::run(Module& module) const {
  if (Compressor(module, options_).run() > 0 || options_.partial) return;
  if (options_.kind == CompressActivations::Kind::bf16)
    refuse(
        "memory.activations = \"bf16\" has nothing to make smaller: no activation is saved in f32 (train.precision "
        "decides that); the nearest is \"int8\", or \"full\"");
  if (options_.kind == CompressActivations::Kind::sharded)
    refuse(
        "memory.activations = \"sharded\" has nothing to share out: no activation that is saved is the same on all "
        "ranks along {}; the nearest is \"full\"",
        options_.axis);
  refuse("memory.activations = \"int8\" has nothing to make smaller: no activation is saved; the nearest is \"full\"");
}

}  // namespace trireme::passes
