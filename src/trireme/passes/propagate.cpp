#include "trireme/passes/propagate.h"

#include <algorithm>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/passes/named_dimensions.h"
#include "trireme/passes/node_sharding.h"
#include "trireme/passes/routes.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::Sharding;
using ir::StateId;
using ir::ValueId;

constexpr int kSeveral = -2;  // of factors

// What is sharded together in every graph: a state, or a value of one graph.
struct Cell {
  TensorType type;
  std::vector<Axes> dims;
  std::vector<Axes> shared;  // by dimension: axes along which ranks have the same elements of it, and not others
  bool closed = false;       // nothing more is added: an input, or given by an annotation
  bool keeps_rows = false;   // closed, but not to what shares out rows: a value whose annotation says nothing of them
  bool input = false;
  std::string graph;  // empty: a state
  std::string name;
};

class Propagator {
 public:
  // `given` is the mesh in the user's axes, of which `mesh` may have some in parts.
  Propagator(ir::Module& module, const ir::Mesh& mesh, const ir::Mesh& given,
             const std::vector<Annotation>& annotations, Propagate::Reasons* reasons)
      : module_(module), mesh_(mesh), given_(given), annotations_(annotations), reasons_(reasons) {
    for (const ir::State& state : module.states) {
      state_cell_.push_back(cell_of_state(cells_.size()));
      add_cell("", "@" + state.name, state.type, false);
    }
    for (const Graph& graph : module.graphs) {
      std::vector<std::size_t>& cells = cell_of_.emplace_back();
      for (const ir::ValueInfo& value : graph.values) {
        if (value.kind == ir::ValueInfo::Kind::state) {
          cells.push_back(state_cell_[index(value.state)]);
          continue;
        }
        cells.push_back(cells_.size());
        add_cell(graph.name, "%" + value.name, value.type, value.kind == ir::ValueInfo::Kind::input);
      }
      std::vector<bool>& of_rows = of_rows_.emplace_back();
      for (const ir::ValueInfo& value : graph.values) of_rows.push_back(value.kind == ir::ValueInfo::Kind::input);
      for (const Node& node : graph.nodes)
        if (std::any_of(node.inputs.begin(), node.inputs.end(),
                        [&](ValueId id) { return id != kNone && of_rows[index(id)]; }))
          for (const ValueId id : node.outputs) of_rows[index(id)] = true;
      std::vector<NodeRules>& rules = rules_.emplace_back();
      rules.reserve(graph.nodes.size());
      for (const Node& node : graph.nodes) rules.emplace_back(node, graph.input_types(node), graph.output_types(node));
    }
  }

  // An axis that would have to be in two parts, and the ranks along the first of them; nothing: all is spread.
  using Split = std::pair<std::string, int>;
  std::optional<Split> run() {
    std::set<int> priorities;
    for (const Annotation& a : annotations_) priorities.insert(a.priority);
    for (const int priority : priorities) {
      for (const Annotation& a : annotations_)
        if (a.priority == priority) annotate(a);
      find_shared_rows();
      spread();
      if (split_) return split_;
    }
    check_all_used();
    check_images_used();
    store();
    return std::nullopt;
  }

 private:
  // The parameter whose gradient, state of the optimizer or copy in 16 bits a state is: element by element, so that it
  // is sharded as the parameter is.
  StateId belongs_to(std::size_t s) const {
    const ir::State& state = module_.states[s];
    if (!state.derived_from.empty()) return module_.find_state(state.derived_from);
    const std::size_t end = state.name.rfind('/');
    if (end == std::string::npos) return kNone;
    const StateId of = module_.find_state(state.name.substr(0, end));
    return of != kNone && module_.state(of).trained && module_.state(of).type.shape == state.type.shape ? of : kNone;
  }
  std::size_t cell_of_state(std::size_t s) const {
    const StateId of = belongs_to(s);
    return of == kNone ? s : cell_of_state(index(of));
  }

  void add_cell(std::string graph, std::string name, const TensorType& type, bool input) {
    const std::vector<Axes> none(static_cast<std::size_t>(type.shape.rank()));
    cells_.push_back({type, none, none, input, false, input, std::move(graph), std::move(name)});
  }

  void explain(const Cell& cell, const std::string& axis, const Cell* from, std::string text) {
    if (reasons_ == nullptr) return;
    const Propagate::Place source = from == nullptr ? Propagate::Place{} : Propagate::Place{from->graph, from->name};
    (*reasons_)[{cell.graph, cell.name}].push_back({axis, source, std::move(text)});
  }

  // ---- annotations

  static bool is_here(const Annotation& a, const Cell& cell) {
    return cell.graph.empty() || a.graphs.empty() ||
           std::find(a.graphs.begin(), a.graphs.end(), cell.graph) != a.graphs.end();
  }
  // A name of what annotations are for, in the graphs of this one. Start values and updates follow their states.
  bool may_be_meant(const Annotation& a, std::size_t c) const {
    const Cell& cell = cells_[c];
    if (cell.graph.empty()) return !module_.states[c].step_local && state_cell_[c] == c;
    return reads_batches(cell.graph) && (is_here(a, cell) || (a.where_it_fits && !cell.input));
  }

  void annotate(const Annotation& a) {
    bool matched = false;
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (!may_be_meant(a, c) || !matches_pattern(a.pattern, std::string_view(cells_[c].name).substr(1))) continue;
      matched = true;
      apply(a, c, is_here(a, cells_[c]));
    }
    if (!matched && !a.optional) no_match(a);
  }

  // `must`: refuses what does not fit, which is left out otherwise.
  void apply(const Annotation& a, std::size_t c, bool must) {
    Cell& cell = cells_[c];
    if (must) check_axes_once(a.pattern, a.sharding, named(c));
    for (const std::string& part : split(a.sharding, ',')) {
      const std::vector<std::string> pair = split(trim(part), ':');
      if (pair.size() != 2)
        refuse(
            "parallel.sharding: \"{}\" = \"{}\" is not a sharding; the nearest is \"dimension:axis\", as in \"out:tp\"",
            a.pattern, a.sharding);
      const std::string axis(trim(pair[1]));
      const std::optional<int> dim = find_dimension(named(c), std::string(trim(pair[0])));
      if (!dim && !must) continue;
      if (!dim)
        refuse("parallel.sharding: \"{}\" = \"{}\": {} {} has no dimension '{}'; it has {}{}", a.pattern, a.sharding,
               cell.name.substr(1), cell.type.str(), pair[0], dimension_names(named(c)),
               cell.type.shape.rank() == 0 ? "" : fmt::format("; the nearest is \"0:{}\"", axis));
      const std::vector<std::string> parts = ir::parts_of(mesh_, axis);
      if (mesh_.size_of(fmt::format("{}", fmt::join(parts, "+"))) == 1) continue;
      if (has(cell, parts.front())) continue;
      if (!must && !fits(cell, *dim, parts)) continue;
      if (ir::is_spatial(axis)) {
        annotate_spatially(a, c, *dim, std::string(trim(pair[0])), axis);
        continue;
      }
      const std::int64_t others = ranks_along(cell.dims[static_cast<std::size_t>(*dim)], mesh_);
      const std::int64_t ranks = others * ranks_along(parts, mesh_);
      if (const std::int64_t extent = cell.type.shape[*dim];
          extent % ranks != 0 && (extent < ranks || !may_pad(c, *dim)))
        refuse(
            "parallel.mesh = \"{}\": {} {} is sharded by {}, and {} ranks cannot have equal shards of {}; the nearest "
            "is "
            "{}",
            given_.str(), cell.name.substr(1), cell.type.str(),
            sharded_by(trim(pair[0]), cell.dims[static_cast<std::size_t>(*dim)], axis), ranks, extent,
            a.instead.empty() ? fmt::format("{}={}", axis, nearest_divisor(extent / others, ranks / others))
                              : a.instead);
      for (const std::string& piece : parts) {
        add(cell, *dim, piece);
        explain(cell, piece, nullptr, fmt::format("the annotation \"{}\" = \"{}\"", a.pattern, a.sharding));
      }
    }
    cell.closed = cell.closed || must ||
                  std::any_of(cell.dims.begin(), cell.dims.end(), [](const Axes& axes) { return !axes.empty(); });
    cell.keeps_rows = cell.closed && !cell.input && !cell.graph.empty();
  }

  // Axes that share out rows, and slices of images, go through values that are annotated over others.
  bool takes_more(const Cell& cell, const std::string& axis) const {
    if (!cell.closed) return true;
    return cell.keeps_rows && rows_first_ && (axis == ir::kDataAxis || ir::is_spatial(axis));
  }

  bool fits(const Cell& cell, int dim, const Axes& axes) const {
    const Axes& others = cell.dims[static_cast<std::size_t>(dim)];
    const std::int64_t extent = cell.type.shape[dim];
    if (ir::is_spatial(axes.front())) return others.empty() && may_shard_spatially(extent, axes.front(), mesh_);
    return extent % (ranks_along(others, mesh_) * ranks_along(axes, mesh_)) == 0;
  }

  void annotate_spatially(const Annotation& a, std::size_t c, int dim, const std::string& name,
                          const std::string& axis) {
    Cell& cell = cells_[c];
    const std::map<std::string, int> names = named_dimensions(named(c));
    const auto is = [&](const char* wanted) {
      const auto found = names.find(wanted);
      return found != names.end() && found->second == dim;
    };
    if (cell.graph.empty() || !(is("height") || is("width")))
      refuse(
          "parallel.sharding: \"{}\" = \"{}\": the axis {} shards heights and widths of images, and {} of {} {} is "
          "none; the nearest is {}",
          a.pattern, a.sharding, axis, name, cell.name.substr(1), cell.type.str(), example(axis));
    if (!cell.dims[static_cast<std::size_t>(dim)].empty())
      refuse("parallel.sharding: \"{}\" = \"{}\": {} of {} is sharded over {} already; the nearest is \"{}:{}\" alone",
             a.pattern, a.sharding, name, cell.name.substr(1), fmt::join(cell.dims[static_cast<std::size_t>(dim)], "+"),
             name, axis);
    if (!may_shard_spatially(cell.type.shape[dim], axis, mesh_))
      refuse("parallel.mesh = \"{}\": {} {} cannot be sharded over {}={}: its {} is {}; the nearest is {}={}",
             given_.str(), cell.name.substr(1), cell.type.str(), axis, mesh_.size_of(axis), name, cell.type.shape[dim],
             axis, cell.type.shape[dim]);
    add(cell, dim, axis);
    explain(cell, axis, nullptr, fmt::format("the annotation \"{}\" = \"{}\"", a.pattern, a.sharding));
  }

  // Ranks along an axis that shards nothing would all do the same.
  void check_all_used() const {
    const auto used = [&](const Cell& cell, const std::string& axis) {
      const std::vector<std::string> parts = ir::parts_of(mesh_, axis);
      return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) { return has(cell, part); });
    };
    for (const ir::Mesh::Axis& axis : given_.axes)
      if (axis.size > 1 && axis.name != ir::kPipelineAxis &&
          std::none_of(cells_.begin(), cells_.end(), [&](const Cell& c) { return used(c, axis.name); }))
        refuse(
            "parallel.mesh = \"{}\": nothing is sharded over {}{}; name what to shard over it in parallel.sharding, as "
            "in {}, or leave the axis out; the nearest is \"{}\"",
            given_.str(), axis.name,
            std::any_of(annotations_.begin(), annotations_.end(), [](const Annotation& a) { return a.where_it_fits; })
                ? " by parallel.sharding, which takes the place of a family's own annotations"
                : "",
            example(axis.name), without(axis.name));
  }

  // An annotation that an axis is for.
  static std::string example(const std::string& axis) {
    if (ir::is_spatial(axis))
      return fmt::format("\"images\" = \"{}:{}\"", axis == ir::kHeightAxis ? "height" : "width", axis);
    return fmt::format("\"*.up.weight\" = \"out:{}\"", axis);
  }

  // Nor is anything gained where a model makes nothing of an image's height or width but something else.
  void check_images_used() const {
    for (const ir::Mesh::Axis& axis : mesh_.axes)
      if (axis.size > 1 && ir::is_spatial(axis.name) &&
          std::none_of(cells_.begin(), cells_.end(), [&](const Cell& c) { return !c.closed && has(c, axis.name); }))
        refuse(
            "parallel.mesh = \"{}\": nothing that the model makes of its images has a height or width that {} could "
            "shard; leave the axis out, or take dp in its place; the nearest is \"{}\"",
            given_.str(), axis.name, without(axis.name));
  }

  std::string without(const std::string& name) const {
    ir::Mesh mesh = given_;
    std::erase_if(mesh.axes, [&](const ir::Mesh::Axis& axis) { return axis.name == name; });
    return mesh.axes.empty() ? fmt::format("{}=1", ir::kDataAxis) : mesh.str();
  }

  static std::int64_t nearest_divisor(std::int64_t extent, std::int64_t ranks) {
    while (ranks > 1 && extent % ranks != 0) --ranks;
    return ranks;
  }

  // Features and words may be padded with zeros; a number of heads, rows or positions may not. In 16 bits it is a copy
  // of a parameter that the model reads.
  bool may_pad(std::size_t c, int dim) const {
    if (!cells_[c].graph.empty()) return false;
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      if ((s == c || module_.states[s].derived_from == module_.states[c].name) && !readers_pad(s, dim)) return false;
    return true;
  }

  bool readers_pad(std::size_t c, int dim) const {
    for (std::size_t g = 0; g < module_.graphs.size(); ++g)
      for (std::size_t n = 0; n < module_.graphs[g].nodes.size(); ++n) {
        const Node& node = module_.graphs[g].nodes[n];
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
          if (node.inputs[i] == kNone) continue;
          const ir::ValueInfo& read = module_.graphs[g].value(node.inputs[i]);
          if (read.kind != ir::ValueInfo::Kind::state || index(read.state) != c) continue;
          const NodeRules& rules = rules_[g][n];
          if (!rules.may_pad(rules.factors().inputs[i][static_cast<std::size_t>(dim)])) return false;
          // A result of several such dimensions is one of heads.
          if (node.op->name == "matmul" && cells_[c].type.shape.rank() > 2) return false;
        }
      }
    return true;
  }

  // Behind a leading "*." names are compared by as many of their last parts as the pattern has.
  [[noreturn]] void no_match(const Annotation& a) const {
    const bool any_before = a.pattern.starts_with("*.");
    const std::string wanted = any_before ? a.pattern.substr(2) : a.pattern;
    const std::size_t parts = split(wanted, '.').size();
    std::vector<std::string> names, patterns;  // what is compared, and what would match there
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (!may_be_meant(a, c)) continue;
      std::vector<std::string> own = split(cells_[c].name.substr(1), '.');
      const bool inner = any_before && own.size() > parts;  // "*." stands for at least one part
      if (inner) own.erase(own.begin(), own.end() - static_cast<std::ptrdiff_t>(parts));
      names.push_back(fmt::format("{}", fmt::join(own, ".")));
      patterns.push_back((inner ? "*." : "") + names.back());
    }
    const auto close = nearest(wanted, names);
    std::string proposal;
    if (close)
      proposal = patterns[static_cast<std::size_t>(std::find(names.begin(), names.end(), *close) - names.begin())];
    refuse("parallel.sharding: \"{}\" = \"{}\": no parameter, input or value has such a name{}", a.pattern, a.sharding,
           close ? fmt::format("; the nearest is \"{}\"", proposal) : "");
  }

  NamedTensor named(std::size_t c) const {
    const StateId state = c < module_.states.size() ? static_cast<StateId>(c) : kNone;
    return {module_, state, cells_[c].name.substr(1), cells_[c].type};
  }

  // ---- propagation

  static bool is_in(const std::string& axis, const Axes& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }
  static bool has(const Cell& cell, const std::string& axis) {
    const auto in = [&](const Axes& axes) { return is_in(axis, axes); };
    return std::any_of(cell.dims.begin(), cell.dims.end(), in) ||
           std::any_of(cell.shared.begin(), cell.shared.end(), in);
  }

  void add(Cell& cell, int dim, const std::string& axis) {
    Axes& axes = cell.dims[static_cast<std::size_t>(dim)];
    axes.push_back(axis);
    std::sort(axes.begin(), axes.end(),
              [&](const std::string& a, const std::string& b) { return mesh_.index_of(a) < mesh_.index_of(b); });
  }

  // What reads batches with no rows to share out, such as one row to predict from, has the states as training has them.
  void find_shared_rows() {
    shares_rows_.clear();
    for (std::size_t g = 0; g < module_.graphs.size(); ++g) {
      const Graph& graph = module_.graphs[g];
      shares_rows_.push_back(!reads_batches(graph.name) ||
                             std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
                               return has(cells_[cell_of_[g][index(id)]], ir::kDataAxis);
                             }));
    }
  }

  // Rows first, which go where they can before parameters that have the data axis too send it elsewhere.
  void spread() {
    for (const bool rows_first : {true, false}) {
      rows_first_ = rows_first;
      spread_on();
    }
  }

  void spread_on() {
    for (bool changed = true; changed;) {
      changed = false;
      // Reductions only where nothing else moves any more.
      while (sweep(false)) changed = true;
      if (sweep(true)) changed = true;
    }
  }

  bool sweep(bool reductions) {
    bool changed = false;
    for (std::size_t g = 0; g < module_.graphs.size(); ++g) {
      const Graph& graph = module_.graphs[g];
      for (std::size_t n = 0; n < graph.nodes.size(); ++n) changed |= visit(g, n, reductions);
      for (std::size_t n = graph.nodes.size(); n-- > 0;) changed |= visit(g, n, reductions);
      for (const ir::Write& write : graph.writes)
        changed |= link(cell_of_[g][index(write.value)], state_cell_[index(write.state)]);
    }
    return changed;
  }

  // Two cells that are the same tensor.
  bool link(std::size_t a, std::size_t b) {
    bool changed = false;
    for (std::size_t d = 0; d < cells_[a].dims.size(); ++d) {
      changed |= copy(cells_[a], cells_[b], d);
      changed |= copy(cells_[b], cells_[a], d);
    }
    return changed;
  }

  bool copy(const Cell& from, Cell& to, std::size_t d) {
    bool changed = false;
    const auto of_its_own = [&](const std::string& axis) { return !is_in(axis, from.dims[d]); };
    for (const std::string& axis : from.dims[d]) {
      if (rows_first_ && axis == ir::kDataAxis) continue;
      if (!takes_more(to, axis) || has(to, axis) || !takes(to, d, axis)) continue;
      // Axes of both come together by chance: the extent divides by all of them, or each has its own.
      if (std::any_of(to.dims[d].begin(), to.dims[d].end(), of_its_own) && !fits(to, static_cast<int>(d), {axis}))
        continue;
      add(to, static_cast<int>(d), axis);
      explain(to, axis, &from, "the same tensor");
      changed = true;
    }
    for (const std::string& axis : from.shared[d]) {
      if (to.closed || has(to, axis)) continue;
      to.shared[d].push_back(axis);
      changed = true;
    }
    return changed;
  }

  // Lets axes go from the operands and results of a node to the others.
  bool visit(std::size_t g, std::size_t n, bool reductions) {
    const Node& node = module_.graphs[g].nodes[n];
    const NodeRules& rules = rules_[g][n];
    const ir::Factors& factors = rules.factors();
    bool changed = false;
    for (const ir::Mesh::Axis& axis : mesh_.axes) {
      if (axis.size == 1) continue;
      const Cell* source = nullptr;
      const int factor = claimed(g, node, factors, axis.name, source);
      if (factor < 0 || !rules.shardable(factor, axis.name)) continue;
      if (!reductions && reduces(factors, factor)) continue;
      if (!rules.fits(factor, {axis.name}, mesh_)) {
        if (const std::int64_t few = rules.shared_by(factor, axis.size); few > 1 && !split_)
          split_ = {axis.name, static_cast<int>(few)};
        continue;
      }
      changed |= extend(g, node, rules, factor, axis.name, *source);
    }
    return changed;
  }

  // The factor that an axis shards in some operand or result of a node; -1: none, or more than one. Rows that are
  // shared out stay so where a parameter has the data axis too, in another dimension.
  int claimed(std::size_t g, const Node& node, const ir::Factors& factors, const std::string& axis,
              const Cell*& source) const {
    if (axis == ir::kDataAxis && rows_first_) return claimed_by(g, node, factors, axis, source, true);
    const int any = claimed_by(g, node, factors, axis, source, false);
    return any == kSeveral && axis == ir::kDataAxis ? claimed_by(g, node, factors, axis, source, true) : any;
  }

  // `of_rows`: only what is made of the graph's inputs claims.
  int claimed_by(std::size_t g, const Node& node, const ir::Factors& factors, const std::string& axis,
                 const Cell*& source, bool of_rows) const {
    int found = -1;
    source = nullptr;
    each_dim(g, node, factors, [&](const Cell& cell, std::size_t d, int factor, ValueId value) {
      if (found == kSeveral || (of_rows && !of_rows_[g][index(value)])) return;
      if (!is_in(axis, cell.dims[d]) && !is_in(axis, cell.shared[d])) return;
      if (source == nullptr) source = &cell;
      found = found >= 0 && found != factor ? kSeveral : factor;
    });
    return found;
  }

  template <class F>
  void each_dim(std::size_t g, const Node& node, const ir::Factors& factors, F&& f) const {
    const auto side = [&](const std::vector<ValueId>& ids, const std::vector<std::vector<int>>& dims) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == kNone) continue;
        const Cell& cell = cells_[cell_of_[g][index(ids[i])]];
        for (std::size_t d = 0; d < dims[i].size(); ++d) f(cell, d, dims[i][d], ids[i]);
      }
    };
    side(node.inputs, factors.inputs);
    side(node.outputs, factors.outputs);
  }

  // Whether sharding the factor leaves sums to be taken, or needs a partition function.
  static bool reduces(const ir::Factors& factors, int factor) {
    if (factors.factors[static_cast<std::size_t>(factor)].kind != ir::Factor::Kind::free) return true;
    return std::any_of(factors.outputs.begin(), factors.outputs.end(), [&](const std::vector<int>& dims) {
      return std::find(dims.begin(), dims.end(), factor) == dims.end();
    });
  }

  // Heights and widths are sharded by their own axes alone, and states by none of these.
  static bool takes(const Cell& cell, std::size_t d, const std::string& axis) {
    const Axes& axes = cell.dims[d];
    if (ir::is_spatial(axis)) return axes.empty() && !cell.graph.empty();
    return axes.empty() || !ir::is_spatial(axes.front());
  }

  bool extend(std::size_t g, const Node& node, const NodeRules& rules, int factor, const std::string& axis,
              const Cell& source) {
    const ir::Factors& factors = rules.factors();
    bool changed = false;
    const std::string& made = module_.graphs[g].value(node.outputs.front()).name;
    bool sharded = false;  // by any of them, which others may only share
    each_dim(g, node, factors, [&](const Cell& cell, std::size_t d, int f, ValueId) {
      sharded |= f == factor && is_in(axis, cell.dims[d]);
    });
    each_dim(g, node, factors, [&](const Cell& seen, std::size_t d, int f, ValueId) {
      Cell& cell = const_cast<Cell&>(seen);
      if (f != factor || !takes_more(cell, axis) || has(cell, axis) || !takes(cell, d, axis)) return;
      if (axis == ir::kDataAxis && cell.graph.empty() && !shares_rows_[g]) return;
      if (!sharded) {
        cell.shared[d].push_back(axis);
        changed = true;
        return;
      }
      const std::int64_t ranks = ranks_along(cell.dims[d], mesh_) * mesh_.size_of(axis);
      const std::int64_t own = cell.type.shape[static_cast<int>(d)];
      // What a graph makes is padded over one axis, not over several that come together by chance.
      if (own % ranks != 0 && !cell.graph.empty() && !cell.dims[d].empty() &&
          ir::axis_of_part(cell.dims[d].front()) != ir::axis_of_part(axis))
        return;
      if (own % ranks != 0 && (own < ranks || !rules.may_pad(factor)) && !ir::is_spatial(axis)) {
        // A key head that several ranks read is the same on all of them.
        const bool few = own == ranks_along(cell.dims[d], mesh_);
        if (few) cell.shared[d].push_back(axis);
        changed = changed || few;
        return;
      }
      add(cell, static_cast<int>(d), axis);
      explain(
          cell, axis, &source,
          fmt::format("factor {} of {} %{}", factors.factors[static_cast<std::size_t>(f)].name, node.op->name, made));
      changed = true;
    });
    return changed;
  }

  // ---- results

  void store() {
    module_.mesh = mesh_;
    const auto sharding_of = [](const Cell& cell) {
      Sharding sharding;
      sharding.dims = cell.dims;
      return sharding.replicated() ? Sharding{} : sharding;
    };
    for (std::size_t s = 0; s < module_.states.size(); ++s) {
      const Cell& cell = cells_[state_cell_[s]];
      module_.states[s].sharding = sharding_of(cell);
      for (const Axes& axes : cell.dims)
        for (const std::string& axis : axes)
          if (state_cell_[s] != s) explain(cells_[s], axis, &cell, "as its parameter");
    }
    for (std::size_t g = 0; g < module_.graphs.size(); ++g)
      for (std::size_t v = 0; v < module_.graphs[g].values.size(); ++v)
        module_.graphs[g].values[v].sharding = sharding_of(cells_[cell_of_[g][v]]);
  }

  ir::Module& module_;
  const ir::Mesh& mesh_;
  const ir::Mesh& given_;
  const std::vector<Annotation>& annotations_;
  Propagate::Reasons* reasons_;
  std::optional<Split> split_;
  bool rows_first_ = false;
  std::vector<Cell> cells_;                        // the states first
  std::vector<std::size_t> state_cell_;            // by state: its own, or its parameter's
  std::vector<std::vector<std::size_t>> cell_of_;  // by graph and value
  std::vector<std::vector<bool>> of_rows_;         // by graph and value: made of the graph's inputs
  std::vector<std::vector<NodeRules>> rules_;      // by graph and node
  std::vector<bool> shares_rows_;                  // by graph: of one that reads batches, the data axis shards an input
};

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    for (std::size_t skipped = 0; skipped <= name.size(); ++skipped)
      if (matches_pattern(pattern.substr(1), name.substr(skipped))) return true;
    return false;
  }
  return !name.empty() && pattern.front() == name.front() && matches_pattern(pattern.substr(1), name.substr(1));
}

void Propagate::run(ir::Module& module) const {
  ir::Mesh mesh = options_.mesh;
  while (true) {
    Reasons reasons;
    const auto split =
        Propagator(module, mesh, options_.mesh, options_.annotations, reasons_ == nullptr ? nullptr : &reasons).run();
    if (reasons_ != nullptr) *reasons_ = std::move(reasons);
    if (!split) return;
    mesh = ir::split_axis(mesh, split->first, split->second);
  }
}

}  // namespace trireme::passes
