#include "trireme/passes/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/ir/partition.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/passes/node_sharding.h"
#include "trireme/passes/rebuild.h"
#include "trireme/passes/reshard.h"
#include "trireme/passes/routes.h"
#include "trireme/passes/sharded_values.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::Node;
using ir::Sharding;
using ir::StateId;
using ir::ValueId;

class GraphPartitioner {
 public:
  GraphPartitioner(ir::Module& module, const std::string& graph, const std::vector<TensorType>& whole_states,
                   const Partition::Options& options)
      : module_(module),
        rebuild_(module, graph),
        values_(module, rebuild_, whole_states, {options.places, options.replicas_last}),
        whole_states_(whole_states),
        options_(options),
        uses_(rebuild_.old()) {}

  void run() {
    for (const Node& node : old().nodes) partition(node);
    std::map<StateId, std::vector<const ir::Write*>> writes;
    for (const ir::Write& write : old().writes) writes[write.state].push_back(&write);
    for (const auto& [state, all] : writes) settle(state, all);
    std::vector<ir::Output> outputs;
    for (const ir::Output& output : old().outputs)
      outputs.push_back({output.name, values_.as(output.value, Sharding{}, behind(output.value)).value});
    finish(std::move(outputs));
  }

 private:
  const ir::Graph& old() const { return rebuild_.old(); }
  ir::Graph& fresh() { return rebuild_.fresh(); }
  const ir::Mesh& mesh() const { return module_.mesh; }
  TensorType own_type(const TensorType& type, const Sharding& sharding) const {
    return values_.own_type(type, sharding);
  }
  const TensorType& whole_type(ValueId id) const { return values_.whole_type(id); }
  ir::Types whole_types(const std::vector<ValueId>& ids) const {
    ir::Types types;
    for (const ValueId id : ids) types.push_back(id == kNone ? TensorType::none() : whole_type(id));
    return types;
  }
  Sharding wanted(ValueId id) const { return values_.wanted(id); }
  const Sharding& sharding_of(ValueId id) const { return values_.sharding_of(id); }
  Form as(ValueId id, const Sharding& to, const Node& user) { return values_.as(id, to, user); }

  // In whose place stands what is added behind all nodes.
  const Node& last_node() const { return old().nodes.empty() ? no_node_ : old().nodes.back(); }

  // Likewise of a value for a write or an output: of a pipeline in the stage that makes it, and a gradient with it.
  Node behind(ValueId id) const {
    const std::int32_t producer = uses_.producer[index(id)];
    if (producer == kNone) return last_node();
    const Node& maker = old().nodes[index(producer)];
    if (is_backward(maker)) return maker;
    Node like = last_node();
    like.stage = maker.stage;
    return like;
  }

  // ---- how a node computes

  // Whether a value is only added to sums over the step: each rank may keep its own terms.
  bool only_accumulated(ValueId id) const {
    if (!uses_.consumers[index(id)].empty()) return false;
    bool any = false;
    for (const ir::Write& write : old().writes)
      if (write.value == id) {
        if (write.mode != ir::Write::Mode::add || !module_.state(write.state).step_local) return false;
        any = true;
      }
    return any &&
           std::none_of(old().outputs.begin(), old().outputs.end(), [&](const ir::Output& o) { return o.value == id; });
  }

  // States stay where they are: to gather weights for use is for other passes. But over the data axis, where rows are
  // shared out too, one of both moves at each use. So it is with the sums of gradients: no rank makes terms of
  // another's shard.
  double bytes_of_state(const Route& route, Sharding sharding, const TensorType& type) const {
    constexpr double kMovesState = 1e6;
    double bytes = 0;
    for (const RouteStep& step : route.steps) {
      bytes +=
          bytes_of(step, type, sharding, mesh()) * (ir::axis_of_part(step.axis) == ir::kDataAxis ? 1 : kMovesState);
      sharding = after(sharding, step);
    }
    return bytes;
  }

  // Bytes that move before and behind a node that computes so; nothing: it cannot.
  std::optional<double> cost(const Node& node, const NodeSharding& way) const {
    double bytes = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const auto found =
          values_.cheapest(node.inputs[i], canonical(way.inputs[i], whole_type(node.inputs[i]), mesh()), node);
      if (!found) return std::nullopt;
      const bool state =
          old().value(node.inputs[i]).kind == ir::ValueInfo::Kind::state && found->second.sharding.partial.empty();
      bytes +=
          state ? bytes_of_state(found->first, found->second.sharding, whole_type(node.inputs[i])) : found->first.bytes;
    }
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      Sharding made = canonical(way.outputs[o], whole_type(id), mesh());
      if (only_accumulated(id))
        std::erase_if(made.partial, [&](const Sharding::Partial& p) { return !shards(wanted(id), p.axis); });
      const auto route = cheapest_route(whole_type(id), made, wanted(id), mesh());
      if (!route) return std::nullopt;
      bytes += only_accumulated(id) ? bytes_of_state(*route, made, whole_type(id)) : route->bytes;
      bytes += summed_by_function(node, way, o);
      // Of ways that move equally many bytes the one that computes the least.
      bytes += 1e-6 * static_cast<double>(local_type(whole_type(id), made, mesh()).bytes());
    }
    return bytes;
  }

  // What a partition function sends over the data axis to sum a result, such as rows of a table that have the words of
  // all ranks: next to that a table over the data axis may better be gathered. Of results with a whole table nothing.
  double summed_by_function(const Node& node, const NodeSharding& way, std::size_t output) const {
    const std::string data = ir::kDataAxis;
    const bool table = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNone && old().value(id).kind == ir::ValueInfo::Kind::state && shards(sharding_of(id), data);
    });
    if (!table || std::find(way.partitioned.begin(), way.partitioned.end(), data) == way.partitioned.end()) return 0;
    const ValueId id = node.outputs[output];
    Sharding terms = canonical(way.outputs[output], whole_type(id), mesh());
    if (only_accumulated(id) || shards(terms, data)) return 0;
    terms.partial.push_back({data, Sharding::Reduce::sum});
    const auto route = cheapest_route(whole_type(id), canonical(terms, whole_type(id), mesh()), wanted(id), mesh());
    return route ? route->bytes : 0;
  }

  // Every axis may shard a factor that it shards in an operand or a result, or none.
  NodeSharding choose(const Node& node) const {
    const NodeRules rules(node, whole_types(node.inputs), whole_types(node.outputs));
    const ir::Factors& factors = rules.factors();
    std::vector<Sharding> operands;
    for (const ValueId id : node.inputs) operands.push_back(id == kNone ? Sharding{} : sharding_of(id));
    const std::vector<std::string> through = rules.sums_through(operands);

    struct Choice {
      std::string axis;
      std::vector<int> factors;  // -1: none
    };
    std::vector<Choice> choices;
    for (const ir::Mesh::Axis& axis : mesh().axes) {
      if (axis.size == 1) continue;
      std::set<int> claimed;
      const auto claim = [&](const Sharding& sharding, const std::vector<int>& dims) {
        for (std::size_t d = 0; d < sharding.dims.size() && d < dims.size(); ++d)
          if (std::find(sharding.dims[d].begin(), sharding.dims[d].end(), axis.name) != sharding.dims[d].end() &&
              rules.shardable(dims[d], axis.name))
            claimed.insert(dims[d]);
      };
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != kNone)
          for (const Form& form : values_.available(node.inputs[i], node)) claim(form.sharding, factors.inputs[i]);
      for (std::size_t o = 0; o < node.outputs.size(); ++o) claim(wanted(node.outputs[o]), factors.outputs[o]);
      if (const auto share = rules.share(); share && axis.name == ir::kDataAxis) {
        choices.push_back({axis.name, {*share}});
        continue;
      }
      if (takes_own_statistics(node)) {
        if (const auto own = own_dimension(axis.name, whole_type(node.inputs.front()).shape.rank())) {
          const int factor = factors.inputs.front()[index(*own)];
          if (rules.fits(factor, {axis.name}, mesh())) {
            choices.push_back({axis.name, {factor}});
            continue;
          }
        }
        // Of rows that other axes share out each rank takes what those along them have together.
        if (!ir::is_spatial(axis.name)) std::erase_if(claimed, [&](int f) { return rules.by_function(f); });
      }
      if (claimed.empty()) continue;
      Choice& choice = choices.emplace_back(Choice{axis.name, {claimed.begin(), claimed.end()}});
      choice.factors.push_back(-1);
    }

    std::optional<NodeSharding> best;
    double least = 0;
    std::vector<std::size_t> at(choices.size(), 0);
    for (bool more = true; more;) {
      std::vector<Axes> axes(factors.factors.size());
      for (std::size_t c = 0; c < choices.size(); ++c)
        if (const int factor = choices[c].factors[at[c]]; factor >= 0) axes[index(factor)].push_back(choices[c].axis);
      bool fits = true;
      for (std::size_t f = 0; f < axes.size(); ++f)
        fits = fits && (axes[f].empty() || rules.fits(static_cast<int>(f), axes[f], mesh()));
      std::vector<std::string> goes;
      for (const std::string& axis : through)
        if (std::none_of(axes.begin(), axes.end(),
                         [&](const Axes& a) { return std::find(a.begin(), a.end(), axis) != a.end(); }))
          goes.push_back(axis);
      if (fits && keeps_own(node, axes, rules)) {
        NodeSharding way = rules.sharded(axes, goes, operands, mesh());
        if (const auto bytes = cost(node, way); bytes && (!best || *bytes < least)) {
          least = *bytes;
          best = std::move(way);
        }
      }
      more = false;
      for (std::size_t c = 0; c < choices.size() && !more; ++c) {
        if (++at[c] < choices[c].factors.size())
          more = true;
        else
          at[c] = 0;
      }
    }
    if (!best) cannot(node, operands);
    return *best;
  }

  // A batch norm by own statistics, or its gradient. Those are of the rows that dp gives a rank, and of its slices of
  // images, whatever shards the values around it: of more rows it would take others.
  bool takes_own_statistics(const Node& node) const {
    const std::string& op = node.op->name;
    return options_.own_statistics && (op == "batch_norm" || op == "batch_norm_grad") &&
           node.attributes.boolean("training");
  }

  // The dimension of values of this rank that is cut over an axis into rows, or slices, of a rank's own: of slices that
  // of the images which a graph reads.
  std::optional<int> own_dimension(const std::string& axis, int rank) const {
    if (axis == ir::kDataAxis) return 0;
    if (!ir::is_spatial(axis)) return std::nullopt;
    for (const ValueId id : old().inputs) {
      const Sharding read = wanted(id);
      for (std::size_t d = 0; std::ssize(read.dims) == rank && d < read.dims.size(); ++d)
        if (std::find(read.dims[d].begin(), read.dims[d].end(), axis) != read.dims[d].end()) return static_cast<int>(d);
    }
    return std::nullopt;
  }

  // Whether what each rank has for itself alone is read as it was made.
  bool keeps_own(const Node& node, const std::vector<Axes>& axes, const NodeRules& rules) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const auto own = id == kNone ? own_.end() : own_.find(id);
      return own == own_.end() || own->second == rules.partitioned(axes);
    });
  }

  [[noreturn]] void cannot(const Node& node, const std::vector<Sharding>& operands) const {
    std::vector<std::string> texts;
    texts.reserve(operands.size());
    for (const Sharding& s : operands) texts.push_back("'" + s.str() + "'");
    fail("{} '{}' of {} cannot be computed from operands sharded as {}", node.op->name,
         old().value(node.outputs.front()).name, old().type(node.outputs.front()).str(), fmt::join(texts, ", "));
  }

  // ---- rebuilding

  void partition(const Node& node) {
    if (sum_in_groups(node)) return;
    const NodeSharding way = choose(node);
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(node.inputs[i] == kNone ? kNone : as(node.inputs[i], way.inputs[i], node).value);
    if (way.partitioned.empty())
      add(node, std::move(inputs), way);
    else
      partition_by_function(node, std::move(inputs), way);
  }

  void add(const Node& node, std::vector<ValueId> inputs, const NodeSharding& way) {
    ir::Types local_inputs;
    for (const ValueId id : inputs) local_inputs.push_back(id == kNone ? TensorType::none() : fresh().type(id));
    ir::Types local;
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      local.push_back(own_type(old().type(node.outputs[o]), way.outputs[o]));
    ir::Attributes changed;
    if (node.op->localize) changed = node.op->localize(local_inputs, local, node.attributes);
    const std::vector<ValueId> outputs = rebuild_.add_like(node, std::move(inputs), changed);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      ir::ValueInfo& value = fresh().value(outputs[o]);
      if (value.type != local[o])
        fail("{} '{}' cannot be sharded as {}: a shard would be {}, the op makes {}", node.op->name, value.name,
             way.outputs[o].str(), local[o].str(), value.type.str());
      made(node.outputs[o], outputs[o], way.outputs[o]);
    }
  }

  void made(ValueId id, ValueId value, const Sharding& sharding) { values_.made(id, value, sharding); }

  // A sum of values of which some are terms of sums over ranks and others are not: those of a kind are added first.
  bool sum_in_groups(const Node& node) {
    if (node.op->traits.linear != ir::Linear::jointly || node.op->operands.size() != 1 ||
        !node.op->operands.front().variadic || node.inputs.size() < 2)
      return false;
    // A concatenation has no terms: its operands are parts of the result.
    const TensorType& whole = old().type(node.outputs.front());
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return old().type(id) != whole; }))
      return false;
    std::map<std::string, std::vector<ValueId>> groups;  // by the axes of the sums
    std::map<std::string, Sharding> sharding;
    for (const ValueId id : node.inputs) {
      Sharding sums;
      sums.dims = wanted(node.outputs.front()).dims;
      sums.partial = sharding_of(id).partial;
      // A term of a sum over an axis is whole along that axis.
      for (Axes& axes : sums.dims)
        std::erase_if(axes, [&](const std::string& axis) {
          return std::any_of(sums.partial.begin(), sums.partial.end(),
                             [&](const Sharding::Partial& p) { return p.axis == axis; });
        });
      groups[sums.str()].push_back(id);
      sharding[sums.str()] = sums;
    }
    if (groups.size() < 2) return false;
    const std::string label = old().value(node.outputs.front()).name;
    const TensorType type = old().type(node.outputs.front());
    std::vector<ValueId> all;
    for (const auto& [key, ids] : groups) {
      Form form;
      form.sharding = canonical(sharding[key], type, mesh());
      std::vector<ValueId> terms;
      for (const ValueId id : ids) terms.push_back(as(id, form.sharding, node).value);
      form.value = terms.size() == 1
                       ? terms.front()
                       : rebuild_.add(node.op->name, terms, node.attributes, label + ".part", node).front();
      const auto route = cheapest_route(type, form.sharding, wanted(node.outputs.front()), mesh());
      TRI_CHECK(route.has_value(), "'{}' cannot be summed", label);
      for (const RouteStep& step : route->steps) {
        form.value = reshard(rebuild_, form.value, type, form.sharding, step, mesh(), options_.places, label, node);
        form.sharding = after(form.sharding, step);
      }
      all.push_back(form.value);
    }
    made(node.outputs.front(), rebuild_.add_like(node, all).front(), wanted(node.outputs.front()));
    return true;
  }

  class Context final : public ir::PartitionContext {
   public:
    Context(GraphPartitioner& p, const Node& node, std::vector<ValueId> inputs, const NodeSharding& way)
        : p_(p),
          node_(node),
          inputs_(std::move(inputs)),
          way_(way),
          whole_inputs_(p.whole_types(node.inputs)),
          set_(node.outputs.size(), false) {
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (whole_inputs_[i].present) way_.inputs[i] = canonical(way_.inputs[i], whole_inputs_[i], p.mesh());
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        way_.outputs[o] = canonical(way_.outputs[o], p.old().type(node.outputs[o]), p.mesh());
    }

    ValueId input(std::size_t i) const override { return inputs_.at(i); }
    std::size_t inputs() const override { return inputs_.size(); }
    const TensorType& type(ValueId value) const override { return p_.fresh().type(value); }
    const ir::Attributes& attributes() const override { return node_.attributes; }
    const TensorType& whole_input(std::size_t i) const override { return whole_inputs_.at(i); }
    const TensorType& whole_output(std::size_t i) const override { return p_.old().type(node_.outputs.at(i)); }
    std::size_t outputs() const override { return node_.outputs.size(); }
    TensorType local_output(std::size_t i) const override { return p_.own_type(whole_output(i), way_.outputs.at(i)); }
    const std::vector<std::string>& input_axes(std::size_t i, int dim) const override {
      return way_.inputs.at(i).dims.at(index(dim));
    }
    const std::vector<std::string>& output_axes(std::size_t i, int dim) const override {
      return way_.outputs.at(i).dims.at(index(dim));
    }
    int size_of(const std::string& axis) const override { return p_.mesh().size_of(axis); }
    std::int64_t parts() const override { return ranks_along(way_.partitioned, p_.mesh()); }
    ValueId place(const std::string& axis) override {
      return p_.fresh().find_or_add_input(place_input(axis), {DType::i64, {}});
    }

    int fixed_place(const std::string& axis) const override { return p_.options_.places.at(axis); }
    bool overlaps_halos() const override { return p_.options_.overlap; }

    std::vector<ValueId> add(const std::string& op, std::vector<ValueId> inputs, ir::Attributes attributes) override {
      const bool halo = op == ops::kHaloExchange || op == ops::kHaloReduce;
      const std::string name = halo ? label() + ".halo" : label();
      if (op != ops::kHaloExchange) return p_.rebuild_.add(op, std::move(inputs), std::move(attributes), name, node_);
      ValueId& known = p_.exchanged_.try_emplace(exchange(inputs.front(), attributes), kNone).first->second;
      if (known == kNone) known = p_.rebuild_.add(op, std::move(inputs), std::move(attributes), name, node_).front();
      return {known};
    }
    bool is_exchanged(ValueId x, const ir::Attributes& halo) const override {
      return p_.exchanged_.contains(exchange(x, halo));
    }
    ValueId all_reduce(ValueId value, const std::string& reduce) override {
      const TensorType type = this->type(value);
      const std::string name = p_.fresh().value(value).name;
      const RouteStep step{RouteStep::Kind::all_reduce, fmt::format("{}", fmt::join(way_.partitioned, "+")), -1, -1,
                           reduce == "max" ? Sharding::Reduce::max : Sharding::Reduce::sum};
      Sharding terms;
      terms.dims.resize(index(type.shape.rank()));
      for (const std::string& axis : way_.partitioned) terms.partial.push_back({axis, step.reduce});
      const ValueId sum = reshard(p_.rebuild_, value, type, terms, step, p_.mesh(), p_.options_.places, name, node_);
      // Other axes may shard it, which the value does not say.
      p_.fresh().value(sum).sharding = {};
      return sum;
    }
    ValueId reduced(ValueId value, std::size_t output) override {
      const ValueId id = node_.outputs.at(output);
      Sharding from = way_.outputs.at(output);
      for (const std::string& axis : way_.partitioned) from.partial.push_back({axis, Sharding::Reduce::sum});
      from = canonical(from, whole_output(output), p_.mesh());
      const NodeRules rules(node_, whole_inputs_, p_.whole_types(node_.outputs));
      const Sharding to = rules.with_operands(way_, output, p_.wanted(id), p_.mesh());
      const auto route = cheapest_route(whole_output(output), from, to, p_.mesh());
      TRI_CHECK(route.has_value(), "'{}' cannot be summed", label());
      for (const RouteStep& step : route->steps) {
        value = reshard(p_.rebuild_, value, whole_output(output), from, step, p_.mesh(), p_.options_.places, label(),
                        node_);
        from = after(from, step);
      }
      way_.outputs.at(output) = to;
      return value;
    }
    void set(std::size_t output, ValueId value, bool terms) override {
      Sharding result = way_.outputs.at(output);
      if (terms)
        for (const std::string& axis : way_.partitioned) result.partial.push_back({axis, Sharding::Reduce::sum});
      const ValueId id = node_.outputs.at(output);
      const TensorType expected = p_.own_type(whole_output(output), result);
      if (type(value) != expected)
        fail("the shard of output {} of {} is {}, expected {}", output, label(), type(value).str(), expected.str());
      p_.made(id, value, result);
      set_[output] = true;
    }
    bool own_statistics() const override { return p_.options_.own_statistics; }
    void set_own(std::size_t output, ValueId value) override {
      set(output, value, false);
      p_.own_[node_.outputs.at(output)] = way_.partitioned;
    }
    void check_set() const {
      for (std::size_t i = 0; i < set_.size(); ++i)
        if (!set_[i]) fail("the partition of {} '{}' makes no output {}", node_.op->name, label(), i);
    }

   private:
    std::pair<std::string, bool> exchange(ValueId x, const ir::Attributes& halo) const {
      std::string key = fmt::format("{}", x);
      for (const auto& [attribute, value] : halo) key += fmt::format(" {}={}", attribute, ir::to_text(value));
      return {key, is_backward(node_)};
    }
    const std::string& label() const { return p_.old().value(node_.outputs.front()).name; }

    GraphPartitioner& p_;
    const Node& node_;
    std::vector<ValueId> inputs_;
    NodeSharding way_;
    ir::Types whole_inputs_;
    std::vector<bool> set_;
  };

  void partition_by_function(const Node& node, std::vector<ValueId> inputs, const NodeSharding& way) {
    Context context(*this, node, std::move(inputs), way);
    node.op->partition(context);
    context.check_set();
  }

  // ---- writes

  // Terms may be added up over micro-batches first; other state is set to what it is.
  void settle(StateId id, const std::vector<const ir::Write*>& writes) {
    ir::State& state = module_.state(id);
    const TensorType& whole = whole_states_[index(id)];
    Sharding goal = canonical(state.sharding, whole, mesh());
    goal.partial.clear();
    const bool adds =
        std::all_of(writes.begin(), writes.end(), [](const ir::Write* w) { return w->mode == ir::Write::Mode::add; });
    if (adds && state.step_local) {
      // Axes over which every contribution is a term.
      goal.partial = sharding_of(writes.front()->value).partial;
      std::erase_if(goal.partial, [&](const Sharding::Partial& p) {
        return p.reduce != Sharding::Reduce::sum || shards(goal, p.axis) ||
               std::any_of(writes.begin(), writes.end(), [&](const ir::Write* w) {
                 const auto& terms = sharding_of(w->value).partial;
                 return std::find(terms.begin(), terms.end(), p) == terms.end();
               });
      });
    }
    for (const ir::Write* write : writes) {
      Node user = behind(write->value);
      // What the next micro-batch reads, such as running statistics, is ready when the forward pass is.
      if (const std::int32_t producer = uses_.producer[index(write->value)];
          write->mode == ir::Write::Mode::set && producer != kNone)
        user.phase = old().nodes[index(producer)].phase;
      written_[{id, write->value}] = as(write->value, goal, user).value;
    }
    if (goal.partial.empty()) return;
    if (!state.sharding.partial.empty() && state.sharding.partial != goal.partial)
      fail("state '{}' is summed up from '{}' and '{}'", state.name, state.sharding.str(), goal.str());
    state.sharding = goal;
  }

  void finish(std::vector<ir::Output> outputs) {
    rebuild_.finish();
    ir::Graph& g = module_.graph(old().name);
    g.outputs = std::move(outputs);
    for (std::size_t w = 0; w < old().writes.size(); ++w)
      g.writes[w].value = written_.at({old().writes[w].state, old().writes[w].value});
    // States have their sums' shardings only now.
    for (ir::ValueInfo& value : g.values)
      if (value.kind == ir::ValueInfo::Kind::state) value.sharding = module_.state(value.state).sharding;
    for (const auto& [state, value] : values_.reduced_in_place())
      g.writes.push_back({state, value, ir::Write::Mode::set});
    settle_phases(g);
  }

  ir::Module& module_;
  Rebuild rebuild_;
  ShardedValues values_;
  const std::vector<TensorType>& whole_states_;
  const Partition::Options& options_;
  ir::Uses uses_;
  std::map<std::pair<std::string, bool>, ValueId> exchanged_;  // halos, by operand and attributes, and direction
  std::map<ValueId, Axes> own_;                             // by old value: the axes along which each rank has another
  std::map<std::pair<StateId, ValueId>, ValueId> written_;  // by state and old value
  Node no_node_;
};

// Micro-batches decide how the state that they sum up is held; what reads it comes later.
std::vector<std::string> graph_order(const ir::Module& module) {
  std::vector<std::string> names;
  for (const ir::Graph& graph : module.graphs) names.push_back(graph.name);
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name == "micro"; });
  return names;
}

}  // namespace

std::string place_input(const std::string& axes) {
  std::string name = "place." + axes;
  std::replace(name.begin(), name.end(), '+', '-');
  return name;
}

std::vector<std::string> axes_of_place(std::string_view input) {
  constexpr std::string_view kBegin = "place.";
  return input.starts_with(kBegin) ? split(input.substr(kBegin.size()), '-') : std::vector<std::string>();
}

void Partition::run(ir::Module& module) const {
  std::vector<TensorType> whole;
  for (ir::State& state : module.states) {
    whole.push_back(state.type);
    const TensorType local = local_type(state.type, state.sharding, module.mesh);
    if (!state.sharding.replicated()) state.whole = state.type.shape;
    state.type = local;
  }
  for (const std::string& graph : graph_order(module)) GraphPartitioner(module, graph, whole, options_).run();
}

}  // namespace trireme::passes
