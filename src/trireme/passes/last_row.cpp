#include "trireme/passes/last_row.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

constexpr int kUnknown = -1;
constexpr int kFull = -2;  // all rows are wanted

class Narrow {
 public:
  Narrow(ir::Module& module, const std::string& graph, const LastRow::Options& options)
      : module_(module), rebuild_(module, graph), options_(options), rows_(rebuild_.old().values.size(), kUnknown) {}

  void run() {
    find_rows();
    row_ = rebuild_.fresh().add_input("row", {DType::i32, {}});
    const ir::Graph& old = rebuild_.old();
    for (std::size_t n = 0; n < old.nodes.size(); ++n) {
      const Node& node = old.nodes[n];
      std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
      if (narrowed_[n])
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (carried_[n][i] != kUnknown && rows_[index(node.inputs[i])] == kFull)
            inputs[i] = cut(node.inputs[i], carried_[n][i], node);
      rebuild_.add_like(node, inputs);
    }
    const ValueId wanted = old.find_output(options_.output).value();
    const ValueId result =
        rows_[index(wanted)] == kFull ? cut(wanted, options_.dim, maker(wanted)) : rebuild_.mapped(wanted);
    rebuild_.finish();
    for (ir::Output& output : module_.graph(old.name).outputs)
      if (output.name == options_.output) output.value = result;
  }

 private:
  // From the output backwards: rows_[v] becomes the dimension of v of which one element is enough, or kFull.
  void find_rows() {
    const ir::Graph& graph = rebuild_.old();
    for (const ir::Output& output : graph.outputs)
      want(output.value, output.name == options_.output ? options_.dim : kFull);
    for (const ir::Write& write : graph.writes) want(write.value, kFull);
    narrowed_.assign(graph.nodes.size(), false);
    carried_.resize(graph.nodes.size());
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      const Node& node = graph.nodes[n];
      carried_[n] = carried_dims(node);
      narrowed_[n] = !carried_[n].empty();
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != kNone)
          want(node.inputs[i], narrowed_[n] && carried_[n][i] != kUnknown ? carried_[n][i] : kFull);
      if (!narrowed_[n])
        for (const ValueId id : node.outputs) rows_[index(id)] = kFull;
    }
    // Inputs and states are there in full anyway.
    for (std::size_t v = 0; v < rows_.size(); ++v)
      if (graph.values[v].kind != ir::ValueInfo::Kind::node) rows_[v] = kFull;
  }

  // The node whose output a value is; one of no op for inputs and states.
  Node maker(ValueId value) const {
    for (const Node& node : rebuild_.old().nodes)
      if (std::find(node.outputs.begin(), node.outputs.end(), value) != node.outputs.end()) return node;
    return {};
  }

  void want(ValueId value, int dim) {
    int& row = rows_[index(value)];
    row = row == kUnknown || row == dim ? dim : kFull;
  }

  // The dimension of each input that goes with the wanted row of the outputs, kUnknown for inputs without one; nothing
  // when the node needs all rows.
  std::vector<int> carried_dims(const Node& node) const {
    // A shape that is written down would have to be rewritten as well.
    if (node.attributes.find("shape") != nullptr) return {};
    const ir::Graph& graph = rebuild_.old();
    const ir::Factors f = node.op->factors(graph.input_types(node), graph.output_types(node), node.attributes);
    int factor = kUnknown;
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const int row = rows_[index(node.outputs[o])];
      if (row == kUnknown) continue;  // nobody wants it
      if (row == kFull) return {};
      const int here = f.outputs[o][index(row)];
      if (factor != kUnknown && factor != here) return {};
      factor = here;
    }
    if (factor == kUnknown || f.factors[index(factor)].kind != ir::Factor::Kind::free) return {};
    std::vector<int> dims(node.inputs.size(), kUnknown);
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const std::vector<int>& dims_of = f.inputs[i];
      if (std::count(dims_of.begin(), dims_of.end(), factor) > 1) return {};
      const auto found = std::find(dims_of.begin(), dims_of.end(), factor);
      if (found == dims_of.end()) continue;
      dims[i] = static_cast<int>(found - dims_of.begin());
      any = true;
    }
    return any ? dims : std::vector<int>{};
  }

  ValueId cut(ValueId old, int dim, const Node& user) {
    const auto [known, fresh] = cuts_.try_emplace({old, dim}, kNone);
    if (fresh)
      known->second = rebuild_
                          .add("sequence_slice", {rebuild_.mapped(old), row_},
                               {{"dim", std::int64_t{dim}}, {"extent", std::int64_t{1}}},
                               rebuild_.old().value(old).name + ".row", user)
                          .front();
    return known->second;
  }

  ir::Module& module_;
  Rebuild rebuild_;
  const LastRow::Options& options_;
  std::vector<int> rows_;                  // by value
  std::vector<bool> narrowed_;             // by node
  std::vector<std::vector<int>> carried_;  // by node and input
  std::map<std::pair<ValueId, int>, ValueId> cuts_;
  ValueId row_ = kNone;
};

}  // namespace

void LastRow::run(ir::Module& module) const {
  for (const std::string& graph : options_.graphs) {
    if (!module.graph(graph).find_output(options_.output))
      fail("graph '{}' has no output '{}'", graph, options_.output);
    Narrow(module, graph, options_).run();
  }
}

}  // namespace trireme::passes
