#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/passes/rebuild.h"
#include "trireme/passes/routes.h"

namespace trireme::passes {

// Sharded as given, in local shapes.
struct Form {
  ir::ValueId value = ir::kNone;  // of the fresh graph
  ir::Sharding sharding;
};

// Whether a node belongs to the backward pass.
bool is_backward(const ir::Node& node);

// The values of a graph that is being partitioned, each in the forms in which ranks have it so far. A value that is
// wanted in another form is resharded by the cheapest route, once for all uses of one direction (of a state: and of one
// part of a pipeline): what a backward pass needs of a value that was gathered for the forward pass is gathered again.
class ShardedValues {
 public:
  struct Options {
    const Places& places;
    bool replicas_last = false;  // gradients are summed over the data axis when they are over all others
  };
  // Of `rebuild`'s old graph: its inputs and states are there in the forms that they are annotated with.
  ShardedValues(ir::Module& module, Rebuild& rebuild, const std::vector<TensorType>& whole_states,
                const Options& options);

  // What this rank has, where others may have more or less.
  TensorType own_type(const TensorType& type, const ir::Sharding& sharding) const;
  const TensorType& whole_type(ir::ValueId id) const;
  // As the value is annotated.
  ir::Sharding wanted(ir::ValueId id) const;
  // As it is.
  const ir::Sharding& sharding_of(ir::ValueId id) const;

  // The forms in which a node may take a value without moving any: how it is, and how the same direction has had it.
  std::vector<Form> available(ir::ValueId id, const ir::Node& user) const;
  // From one of them to another form; nothing: there is no way.
  std::optional<std::pair<Route, Form>> cheapest(ir::ValueId id, const ir::Sharding& to, const ir::Node& user) const;
  // The value as a node takes it.
  Form as(ir::ValueId id, const ir::Sharding& to, const ir::Node& user);
  // A value of the old graph is this one.
  void made(ir::ValueId id, ir::ValueId value, const ir::Sharding& sharding);

  // Step-local accumulators whose sums take the place of their terms.
  const std::vector<std::pair<ir::StateId, ir::ValueId>>& reduced_in_place() const { return in_place_; }

 private:
  const ir::Graph& old() const { return rebuild_.old(); }
  ir::Graph& fresh() { return rebuild_.fresh(); }
  const ir::Mesh& mesh() const { return module_.mesh; }
  // Who share what a value was resharded to: its old number, whether they belong to the backward pass, and of a state
  // their part of the pipeline. A state is in every part that reads it, and is not sent from one to the other.
  using Readers = std::tuple<ir::ValueId, bool, std::int32_t>;
  Readers readers(ir::ValueId id, const ir::Node& user) const;
  void check_equal_parts(const std::string& name, const TensorType& type, const ir::Sharding& sharding) const;
  std::vector<RouteStep> split_sums(const std::vector<RouteStep>& steps, const ir::ValueInfo& value) const;
  void replace_terms(ir::ValueId id, const Form& form);

  ir::Module& module_;
  Rebuild& rebuild_;
  const std::vector<TensorType>& whole_states_;
  Options options_;
  std::vector<std::vector<Form>> forms_;            // by old value: as it is
  std::map<Readers, std::vector<Form>> resharded_;  // as it was moved
  mutable std::map<std::tuple<std::string, std::string, std::string>, std::optional<Route>> routes_;
  std::vector<std::pair<ir::StateId, ir::ValueId>> in_place_;
};

// A value is resharded once for the readers of one direction, in the phase and stage of the first of them. What an
// input gradient or another stage reads as well is no weight gradient's: a schedule that splits backwards makes those
// later.
void settle_phases(ir::Graph& graph);

}  // namespace trireme::passes
