#include "trireme/planner/op_strategies.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "trireme/compiler/graph_passes.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/chain.h"
#include "trireme/planner/integer_program.h"
#include "trireme/simulator/collective_time.h"
#include "trireme/simulator/kernel.h"

namespace trireme::planner {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// How a value lies on the ranks of the axis: a dimension's number, or one of these.
constexpr int kWhole = -1;
constexpr int kPartial = -2;

struct Strategy {
  std::vector<int> inputs;   // by operand: the sharding that it reads
  std::vector<int> outputs;  // by result: the sharding that it makes
  double seconds = 0;
};

// A name without the number of its layer: "blocks.3.mlp.up" → "blocks.*.mlp.up".
std::string pattern_of(const std::string& name) {
  const std::string layer = passes::layer_of(name);
  std::size_t digits = layer.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(layer[digits - 1])) != 0) --digits;
  if (digits == layer.size() || digits == 0 || !name.starts_with(layer)) return name;
  return layer.substr(0, digits) + "*" + name.substr(layer.size());
}

class Choosing {
 public:
  Choosing(const ir::Module& module, const compiler::Plan& plan, const cluster::Cluster& cluster,
           const StrategyOptions& options)
      : module_(module),
        graph_(module.graph("micro")),
        uses_(graph_),
        plan_(plan),
        cluster_(cluster),
        options_(options),
        ranks_(plan.mesh.size_of(options.axis)) {
    spread_ = simulator::spread_of(cluster, ranks_, 1);
  }

  ShardingChoice run() {
    add_parameters();
    add_nodes();
    add_reshardings();
    add_memory();
    const std::optional<std::vector<double>> values = program_.solve();
    ShardingChoice choice;
    choice.strategies = program_.variables();
    if (!values) return choice;
    for (const auto& [pattern, own] : parameters_)
      for (std::size_t s = 0; s < own.shardings.size(); ++s)
        if (own.shardings[s] >= 0 && (*values)[index(own.variables[s])] > 0.5)
          choice.annotations.push_back({pattern, fmt::format("{}:{}", own.shardings[s], options_.axis)});
    for (std::size_t v = 0; v < values->size(); ++v) choice.seconds += (*values)[v] * costs_[v];
    return choice;
  }

 private:
  // What a rank chooses for all values or nodes of one kind: exactly one of the variables.
  struct Choice {
    std::vector<int> shardings;  // parameters
    std::vector<int> variables;
    double bytes = 0;
  };

  int variable(double cost, bool whole) {
    costs_.push_back(cost);
    return program_.add_variable(cost, whole);
  }
  void add_cost(int variable, double cost) {
    costs_[index(variable)] += cost;
    program_.add_cost(variable, cost);
  }
  void exactly_one(const std::vector<int>& variables) {
    std::vector<IntegerProgram::Term> terms;
    terms.reserve(variables.size());
    for (const int v : variables) terms.push_back({v, 1});
    program_.add_row(terms, 1, 1);
  }

  bool divides(std::int64_t extent) const { return extent % ranks_ == 0 && extent >= ranks_; }

  const std::string& parameter_name(ir::StateId id) const {
    const ir::State& state = module_.state(id);
    return state.derived_from.empty() ? state.name : state.derived_from;
  }

  // Parameters and inputs lie somewhere before anything is computed; inputs are whole on every rank of the axis.
  void add_parameters() {
    for (const ir::State& state : module_.states) {
      if (!state.trained) continue;
      Choice& own = parameters_[pattern_of(state.name)];
      own.bytes += static_cast<double>(state.type.bytes());
      if (!own.variables.empty()) continue;
      own.shardings = {kWhole};
      if (state.type.shape.rank() > 1)
        for (int d = 0; d < static_cast<int>(state.type.shape.rank()); ++d)
          if (divides(state.type.shape[d])) own.shardings.push_back(d);
      if (const std::optional<int> given = annotated(state)) own.shardings = {*given};
      for (std::size_t s = 0; s < own.shardings.size(); ++s) own.variables.push_back(variable(0, true));
      exactly_one(own.variables);
    }
  }

  // The dimension that a person shards over the axis.
  std::optional<int> annotated(const ir::State& state) const {
    for (const passes::Annotation& a : options_.annotations) {
      if (!passes::matches_pattern(a.pattern, state.name)) continue;
      for (const std::string& one : split(a.sharding, ',')) {
        const std::vector<std::string> parts = split(one, ':');
        if (parts.size() != 2 || parts[1] != options_.axis) continue;
        const std::string& name = parts[0];
        const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
        const int dimension = number ? std::stoi(name) : name == "in" ? 1 : 0;  // out and vocab are the first
        if (dimension < static_cast<int>(state.type.shape.rank())) return dimension;
      }
    }
    return std::nullopt;
  }

  double seconds(const Node& node, const ir::Factors& factors, int factor) const {
    if (node.op->traits.view) return 0;
    ir::Types inputs = graph_.input_types(node);
    ir::Types outputs = graph_.output_types(node);
    const auto shrink = [&](ir::Types& types, const std::vector<std::vector<int>>& dims) {
      for (std::size_t o = 0; o < types.size() && o < dims.size(); ++o) {
        if (!types[o].present) continue;
        std::vector<std::int64_t> extents;
        extents.reserve(static_cast<std::size_t>(types[o].shape.rank()));
        for (int d = 0; d < static_cast<int>(types[o].shape.rank()); ++d)
          extents.push_back(types[o].shape[d] /
                            (index(d) < dims[o].size() && dims[o][index(d)] == factor ? ranks_ : 1));
        types[o].shape = Shape(extents);
      }
    };
    ir::Attributes attributes = node.attributes;
    if (factor >= 0) {
      shrink(inputs, factors.inputs);
      shrink(outputs, factors.outputs);
    }
    try {
      if (factor >= 0 && node.op->localize) attributes = node.op->localize(inputs, outputs, attributes);
      return simulator::kernel_seconds(simulator::kernel_of(*node.op, inputs, outputs, attributes), cluster_.device,
                                       cluster_.current(), plan_.threads);
    } catch (const Error&) {
      // Its cost needs what only the partition pass makes; an even share is close.
      return seconds(node, factors, kWhole) / ranks_;
    }
  }

  std::vector<Strategy> strategies(const Node& node) const {
    const ir::Types inputs = graph_.input_types(node);
    const ir::Types outputs = graph_.output_types(node);
    const ir::Factors factors = node.op->factors(inputs, outputs, node.attributes);
    std::vector<Strategy> all;
    Strategy whole{std::vector<int>(inputs.size(), kWhole), std::vector<int>(outputs.size(), kWhole),
                   seconds(node, factors, kWhole)};
    all.push_back(whole);
    for (std::size_t f = 0; f < factors.factors.size(); ++f) {
      using Kind = ir::Factor::Kind;
      const Kind kind = factors.factors[f].kind;
      if (kind == Kind::whole || kind == Kind::halo || (kind == Kind::partitioned && !node.op->partition)) continue;
      bool possible = true;
      const auto place = [&](const std::vector<std::vector<int>>& dims, std::size_t operand, const TensorType& type,
                             int absent) {
        if (!type.present || operand >= dims.size()) return kWhole;
        for (std::size_t d = 0; d < dims[operand].size(); ++d)
          if (dims[operand][d] == static_cast<int>(f)) {
            possible = possible && divides(type.shape[static_cast<int>(d)]);
            return static_cast<int>(d);
          }
        return absent;
      };
      Strategy s;
      for (std::size_t i = 0; i < inputs.size(); ++i) s.inputs.push_back(place(factors.inputs, i, inputs[i], kWhole));
      for (std::size_t o = 0; o < outputs.size(); ++o)
        s.outputs.push_back(place(factors.outputs, o, outputs[o], kPartial));
      if (!possible) continue;
      s.seconds = seconds(node, factors, static_cast<int>(f));
      all.push_back(std::move(s));
    }
    return all;
  }

  // Nodes of layers that are the same share their variables.
  void add_nodes() {
    std::map<std::string, std::vector<int>> known;
    for (const Node& node : graph_.nodes) {
      strategies_.push_back(strategies(node));
      const std::vector<Strategy>& own = strategies_.back();
      std::string key = node.outputs.empty() ? "" : pattern_of(graph_.value(node.outputs.front()).name);
      key += fmt::format(" {} {} {}", node.op->name, static_cast<int>(node.phase), own.size());
      std::vector<int>& variables = known[key];
      if (variables.empty()) {
        for (std::size_t s = 0; s < own.size(); ++s) variables.push_back(variable(0, true));
        exactly_one(variables);
      }
      for (std::size_t s = 0; s < own.size(); ++s) add_cost(variables[s], own[s].seconds);
      variables_.push_back(variables);
    }
  }

  double resharding(const TensorType& type, int from, int to) const {
    if (from == to || from == kWhole || to == kPartial) return 0;
    using comm::Collective;
    Collective collective = Collective::all_gather;
    auto bytes = static_cast<double>(type.bytes());
    if (from == kPartial) collective = to == kWhole ? Collective::all_reduce : Collective::reduce_scatter;
    if (from >= 0 && to >= 0) {
      collective = Collective::all_to_all;
      bytes /= ranks_;
    }
    const simulator::Duration d =
        simulator::collective_time(cluster_, collective, bytes, spread_, comm::Algorithm::automatic);
    return simulator::seconds_together(cluster_, d);
  }

  // By how it may lie: the variables of which one says that it does.
  std::map<int, std::vector<int>> makers(std::size_t v) const {
    std::map<int, std::vector<int>> all;
    const ir::ValueInfo& value = graph_.values[v];
    if (value.kind == ir::ValueInfo::Kind::state) {
      const auto found = parameters_.find(pattern_of(parameter_name(value.state)));
      if (found == parameters_.end()) return all;
      for (std::size_t s = 0; s < found->second.shardings.size(); ++s)
        all[found->second.shardings[s]].push_back(found->second.variables[s]);
      return all;
    }
    const std::int32_t producer = uses_.producer[v];
    if (producer == kNone) return all;
    const Node& node = graph_.nodes[index(producer)];
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      if (index(node.outputs[o]) == v)
        for (std::size_t s = 0; s < strategies_[index(producer)].size(); ++s)
          all[strategies_[index(producer)][s].outputs[o]].push_back(variables_[index(producer)][s]);
    return all;
  }

  void add_reshardings() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const std::map<int, std::vector<int>> made = makers(v);
      if (made.empty()) continue;
      // By how it is read, and by whom.
      std::map<int, std::vector<std::vector<int>>> read;
      std::set<std::int32_t> readers(uses_.consumers[v].begin(), uses_.consumers[v].end());
      for (const std::int32_t reader : readers) {
        const Node& node = graph_.nodes[index(reader)];
        std::map<int, std::vector<int>> wanted;
        for (std::size_t s = 0; s < strategies_[index(reader)].size(); ++s)
          for (std::size_t i = 0; i < node.inputs.size(); ++i)
            if (node.inputs[i] != kNone && index(node.inputs[i]) == v) {
              std::vector<int>& list = wanted[strategies_[index(reader)][s].inputs[i]];
              if (list.empty() || list.back() != variables_[index(reader)][s])
                list.push_back(variables_[index(reader)][s]);
            }
        for (auto& [how, variables] : wanted) read[how].push_back(variables);
      }
      // A gradient is kept as its parameter is.
      for (const ir::Write& write : graph_.writes)
        if (index(write.value) == v) {
          const std::string name = module_.state(write.state).name;
          const auto found = parameters_.find(pattern_of(name.substr(0, name.find('/'))));
          if (found == parameters_.end()) continue;
          for (std::size_t s = 0; s < found->second.shardings.size(); ++s)
            if (found->second.shardings[s] >= 0)
              read[found->second.shardings[s]].push_back({found->second.variables[s]});
        }
      for (const auto& [from, sources] : made)
        for (const auto& [to, groups] : read) {
          const double cost = resharding(graph_.values[v].type, from, to);
          if (cost <= 0) continue;
          // z ≥ made so + read so − 1, for each reader: it is resharded once for all of them.
          const int z = variable(cost, false);
          for (const std::vector<int>& group : groups) {
            std::vector<IntegerProgram::Term> terms = {{z, -1}};
            for (const int s : sources) terms.push_back({s, 1});
            for (const int r : group) {
              const auto same =
                  std::find_if(terms.begin(), terms.end(), [&](const auto& t) { return t.variable == r; });
              if (same == terms.end())
                terms.push_back({r, 1});
              else
                same->factor += 1;
            }
            program_.add_row(terms, -3, 1);
          }
        }
    }
  }

  void add_memory() {
    if (options_.state_share <= 0) return;
    double all = 0;
    for (const auto& [pattern, own] : parameters_) all += own.bytes;
    std::vector<IntegerProgram::Term> terms;
    for (const auto& [pattern, own] : parameters_)
      for (std::size_t s = 0; s < own.variables.size(); ++s)
        terms.push_back({own.variables[s], own.bytes / all / (own.shardings[s] == kWhole ? 1 : ranks_)});
    program_.add_row(terms, 0, options_.state_share);
  }

  const ir::Module& module_;
  const Graph& graph_;
  ir::Uses uses_;
  const compiler::Plan& plan_;
  const cluster::Cluster& cluster_;
  const StrategyOptions& options_;
  int ranks_;
  simulator::Spread spread_;
  IntegerProgram program_;
  std::vector<double> costs_;
  std::map<std::string, Choice> parameters_;       // by pattern
  std::vector<std::vector<Strategy>> strategies_;  // by node
  std::vector<std::vector<int>> variables_;        // by node and strategy
};

}  // namespace

ShardingChoice choose_shardings(const compiler::Graphs& graphs, const compiler::Plan& plan,
                                const cluster::Cluster& cluster, const StrategyOptions& options) {
  ir::Module module = graphs.module;
  compiler::graph_passes(graphs, plan).run(module, {.until = "propagate"});
  return Choosing(module, plan, cluster, options).run();
}

}  // namespace trireme::planner
