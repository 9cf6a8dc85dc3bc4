#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/passes/rebuild.h"

namespace trireme::passes {

// A shape, as attributes have it.
inline std::vector<std::int64_t> dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

// An update graph, being rebuilt with other ways to sum gradients over the ranks of an axis: what all of them share.
class GradientSums {
 public:
  // A gradient of which each rank along the axis has one term, and the node that sums them. Sums over other axes have
  // been taken.
  struct Sum {
    std::string parameter;
    ir::Node node;
    TensorType type;
    ir::ValueId own;  // the term, in the fresh graph
  };

  // `stages_apart`: each stage of a pipeline looks at its own gradients alone.
  GradientSums(ir::Module& module, const std::string& graph, const std::string& axis, bool stages_apart = false);

  const std::vector<Sum>& all() const { return sums_; }
  int parts() const { return parts_; }
  // What the gradients are scaled by; kNone: nothing.
  ir::ValueId unit() const { return unit_; }

  Rebuild& rebuild() { return rebuild_; }
  ir::Module& module() { return module_; }
  std::vector<ir::ValueId> add(const char* op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                               const std::string& label);
  ir::ValueId all_reduce(ir::ValueId value, const std::string& label);
  // `value` of each rank, as rows one behind the other.
  ir::ValueId all_gather(ir::ValueId value, const std::string& label);
  ir::ValueId all_to_all(ir::ValueId value, const std::string& label);

  // A state of `elements` that each rank has for itself, zero at first: its value. Asking again gives the same state.
  // Ranks along other axes have gradients of other shards, or other terms of them.
  ir::ValueId own_state(const std::string& name, std::int64_t elements);
  // One that all ranks along the axis have alike.
  ir::ValueId shared_state(const std::string& name, const TensorType& type, const ir::Init& init);
  // The new contents of a state, given by its value; it stays as it was after a bad step.
  void keep(ir::ValueId state, ir::ValueId fresh);

  // How much each rank must scale its own terms so that the norm of all gradients is expected to be at most the
  // update's limit: its own norm is held to the limit over √N, with its share of the gradients that need no sum. Takes
  // the loss scale off too. kNone: not at all.
  ir::ValueId local_clip();
  // The update scales no gradient any more, by itself. Those that need no sum, being sharded over the axis or whole on
  // every rank, are scaled by the mean of the ranks' clips.
  void drop_clip() { clips_ = false; }
  // The node of the old graph that makes a parameter anew.
  const ir::Node& update_of(const std::string& parameter) const;
  // What a parameter's update multiplies its results by, to hold some elements at zero; kNone: nothing.
  ir::ValueId kept_of(const std::string& parameter) const;
  // `value`, with as many elements as the parameter, multiplied by that.
  ir::ValueId masked(const std::string& parameter, ir::ValueId value);
  // In place of copying a node of the old graph, `by` is called, which must map its outputs.
  void replace(const ir::Node& node, std::function<void()> by);

  // The sum of a gradient is this.
  void set(const Sum& sum, ir::ValueId value);
  // Copies the nodes that are left: sums that were not set stay what they were.
  void finish();

 private:
  // A gradient that is not summed over the axis.
  struct Ready {
    std::string parameter;
    ir::Node update;
    ir::ValueId own;  // in the fresh graph
    bool sharded;     // or whole on every rank
  };

  void find_ready();
  void scale_ready();
  ir::ValueId scaled(ir::ValueId scalar, double by, const std::string& label);
  std::int64_t other_ranks() const;
  ir::ValueId sum_over(const std::string& axes, ir::ValueId value, const std::string& label);
  ir::StateId add_state(ir::State state);
  ir::ValueId state_value(ir::State state);

  ir::Module& module_;
  std::string axis_;
  bool stages_apart_;
  int parts_;
  std::vector<std::string> other_axes_ = {};  // of the mesh
  Rebuild rebuild_;
  std::vector<Sum> sums_;
  std::vector<Ready> ready_;
  std::map<ir::ValueId, std::function<void()>> replaced_;  // by the first output of nodes of the old graph
  std::vector<std::pair<ir::ValueId, ir::ValueId>> kept_;
  ir::ValueId unit_ = ir::kNone;
  ir::ValueId local_clip_ = ir::kNone;
  bool clips_ = true;
  ir::Node clip_;  // the node that looks at the norm; new ones stand where it does
};

bool is_sharded_over(const ir::State& state, const std::string& axis);
// Names of the parameters whose gradients a graph sums over an axis.
std::set<std::string> parameters_summed_over(const ir::Module& module, const ir::Graph& graph, const std::string& axis);
// The axes other than `axis` along which ranks have other shards of a gradient. Not pp: another stage has other
// gradients.
std::vector<std::string> sharding_axes(const ir::Mesh& mesh, const std::string& axis);

}  // namespace trireme::passes
