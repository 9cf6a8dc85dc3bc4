#include "trireme/passes/compress_messages.h"

#include "trireme/ops/collective/message.h"
#include "trireme/ops/quantize/quantize_int8.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::Node;
using ir::ValueId;

bool is_smaller(const TensorType& type, CompressMessages::Kind kind) {
  if (kind == CompressMessages::Kind::bf16) return type.dtype == DType::f32;
  if ((type.dtype != DType::f32 && type.dtype != DType::bf16 && type.dtype != DType::f16) || type.shape.rank() == 0)
    return false;
  return static_cast<std::size_t>(type.elements()) + ops::int8_scales(type, ops::kInt8Block).bytes() < type.bytes();
}

class MessageCompressor {
 public:
  MessageCompressor(ir::Module& module, Graph& graph, CompressMessages::Kind kind)
      : module_(module), graph_(graph), kind_(kind), replaced_(graph.values.size(), ir::kNone) {}

  void run() {
    std::vector<Node> old = std::move(graph_.nodes);
    const auto follow = [&](ValueId& id) {
      if (id != ir::kNone && index(id) < replaced_.size() && replaced_[index(id)] != ir::kNone)
        id = replaced_[index(id)];
    };
    for (Node& node : old) {
      for (ValueId& id : node.inputs) follow(id);
      if (!ops::sends_or_receives(*node.op)) {
        nodes_.push_back(std::move(node));
        continue;
      }
      // Of each value there may be two messages.
      node.attributes.set("key", 2 * node.attributes.integer("key"));
      node.op->name == ops::kSend ? send(node) : receive(node);
    }
    graph_.nodes = std::move(nodes_);
    for (ir::Write& write : graph_.writes) follow(write.value);
    for (ir::Output& output : graph_.outputs) follow(output.value);
  }

 private:
  bool is_compressed(const Node& node, const TensorType& type) const {
    return node.attributes.text("channel") != "tie" && is_smaller(type, kind_);
  }

  std::vector<ValueId> add(const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                           const std::string& name, const Node& like) {
    nodes_.push_back(graph_.make_node(module_.registry->at(op), std::move(inputs), std::move(attributes), name,
                                      like.phase, like.stage));
    return nodes_.back().outputs;
  }

  void send(const Node& node) {
    const ValueId value = node.inputs.front();
    if (!is_compressed(node, graph_.type(value))) {
      nodes_.push_back(node);
      return;
    }
    const std::string name = graph_.value(value).name;
    const std::vector<ValueId> parts = kind_ == CompressMessages::Kind::bf16
                                           ? add("cast", {value}, {{"to", std::string("bf16")}}, name + ".bf16", node)
                                           : add("quantize_int8", {value}, {}, name + ".int8", node);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Node part = node;
      part.inputs = {parts[i]};
      part.attributes.set("key", node.attributes.integer("key") + static_cast<std::int64_t>(i));
      if (i > 0) part.outputs = {graph_.new_value(name + ".scales.sent", graph_.type(node.outputs.front()))};
      nodes_.push_back(std::move(part));
    }
  }

  void receive(const Node& node) {
    const ValueId value = node.outputs.front();
    const TensorType type = graph_.type(value);
    if (!is_compressed(node, type)) {
      nodes_.push_back(node);
      return;
    }
    const std::string name = graph_.value(value).name;
    std::vector<TensorType> parts = {{DType::bf16, type.shape}};
    if (kind_ == CompressMessages::Kind::int8)
      parts = {{DType::i8, type.shape}, ops::int8_scales(type, ops::kInt8Block)};
    std::vector<ValueId> received;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ir::Attributes attributes = node.attributes;
      attributes.set("key", node.attributes.integer("key") + static_cast<std::int64_t>(i));
      attributes.set("dtype", std::string(name_of(parts[i].dtype)));
      attributes.set("shape", std::vector<std::int64_t>(parts[i].shape.begin(), parts[i].shape.end()));
      received.push_back(
          add(ops::kReceive.data(), {}, attributes, name + (i == 0 ? ".small" : ".scales"), node).front());
    }
    replaced_[index(value)] = add(kind_ == CompressMessages::Kind::bf16 ? "cast" : "dequantize_int8", received,
                                  {{"to", std::string(name_of(type.dtype))}}, name, node)
                                  .front();
    graph_.value(replaced_[index(value)]).sharding = graph_.value(value).sharding;
  }

  ir::Module& module_;
  Graph& graph_;
  CompressMessages::Kind kind_;
  std::vector<ValueId> replaced_;  // by value that was received
  std::vector<Node> nodes_;
};

}  // namespace

void CompressMessages::run(ir::Module& module) const {
  if (module.has_graph(options_.graph)) MessageCompressor(module, module.graph(options_.graph), options_.kind).run();
}

}  // namespace trireme::passes
