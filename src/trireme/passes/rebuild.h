#pragma once
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Builds a graph anew from an old one, node by node, with values replaced on the way. Passes that change types or
// insert nodes in the middle use it:
//
//   Rebuild rebuild(module, "micro");
//   for (const ir::Node& node : rebuild.old().nodes) {
//     auto inputs = rebuild.mapped(node.inputs);
//     …change inputs, add nodes with rebuild.add(…)…
//     rebuild.add_like(node, inputs);
//   }
//   rebuild.finish();
class Rebuild {
 public:
  Rebuild(ir::Module& module, const std::string& graph);

  const ir::Graph& old() const { return old_; }
  ir::Graph& fresh() { return fresh_; }
  const ir::Graph& fresh() const { return fresh_; }
  ir::ValueId mapped(ir::ValueId old) const;
  std::vector<ir::ValueId> mapped(const std::vector<ir::ValueId>& old) const;
  void map(ir::ValueId old, ir::ValueId fresh);

  std::vector<ir::ValueId> add(const std::string& op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                               const std::string& label, const ir::Node& like);
  // The same node with new inputs and, where given, new attributes; its outputs are mapped and keep their
  // shardings. Types are inferred anew. Extra outputs are appended to the result.
  std::vector<ir::ValueId> add_like(const ir::Node& node, std::vector<ir::ValueId> inputs,
                                    const ir::Attributes& changed = {});

  // Writes and outputs follow their values; the module's graph is replaced.
  void finish();

 private:
  ir::Module& module_;
  ir::Graph old_;
  ir::Graph fresh_;
  std::vector<ir::ValueId> map_;
};

}  // namespace trireme::passes
