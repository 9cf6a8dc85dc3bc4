#include "trireme/passes/async_tp.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;
using Dims = std::vector<std::int64_t>;

constexpr const char* kMatmul = "matmul";
constexpr std::size_t kAlignment = 64;  // of what a kernel reads or writes

// A gather and what reads the whole, or products and the sum of them.
struct Gathering {
  std::size_t collective = 0;
  std::vector<std::size_t> shaped;    // nodes that only change the shape, before and behind the collective
  ValueId own = kNone;                // a rank's part: [rows, part of the sequence, …]
  ValueId whole = kNone;              // [rows, sequence, …]
  std::vector<std::size_t> products;  // that read it, in their order
  std::vector<ValueId> gathered;      // parts of it, in the fresh graph
  std::int64_t parts = 1;
};
struct Summing {
  std::size_t collective = 0;
  std::vector<std::size_t> shaped;
  std::vector<std::size_t> terms;  // products, and what adds them up, in their order
  ValueId sum = kNone;             // of a rank's terms: [rows, sequence, …]
  ValueId result = kNone;          // over the ranks: [rows, part of the sequence, …], or all of it
  std::int64_t parts = 1;
};

class Decomposer {
 public:
  Decomposer(ir::Module& module, const AsyncTp::Options& options)
      : options_(options), rebuild_(module, options.graph), uses_(old()) {}

  std::size_t run() {
    for (std::size_t n = 0; n < old().nodes.size(); ++n) find_sum(n);
    for (std::size_t n = 0; n < old().nodes.size(); ++n) find_gather(n);
    for (std::size_t n = 0; n < old().nodes.size(); ++n) {
      if (const auto sum = sums_.find(n); sum != sums_.end())
        emit(sum->second);
      else if (const auto gather = gathers_.find(n); gather != gathers_.end())
        emit(gather->second);
      else if (const auto products = products_.find(n); products != products_.end())
        emit_products(gathers_.at(products->second));
      else if (!gone_.contains(n))
        rebuild_.add_like(old().nodes[n], rebuild_.mapped(old().nodes[n].inputs));
    }
    rebuild_.finish();
    return sums_.size() + gathers_.size();
  }

  // Why nothing was made in parts.
  std::string why_not() const {
    if (products_found_.empty())
      return fmt::format(
          "no product is next to a collective over {}, and nothing else, such as a convolution, is made in "
          "parts",
          options_.axis);
    const auto divided = std::find_if(products_found_.begin(), products_found_.end(), [&](ValueId id) {
      const Shape& shape = old().type(id).shape;
      for (std::int64_t parts = 2; parts <= options_.parts; ++parts)
        if (shape.rank() > 0 && shape[0] % parts == 0) return true;
      return false;
    });
    if (divided == products_found_.end())
      return fmt::format(
          "no product next to a collective over {} can be made in parts; micro-batches need rows that 2, 3 or 4 divide "
          "(train.micro_batch), each of a multiple of {} bytes",
          options_.axis, kAlignment);
    return fmt::format(
        "no product next to a collective over {} can be made in parts: of all that it reads and makes ('{}' is {}) "
        "each "
        "of 2, 3 or 4 parts of the rows must be a multiple of {} bytes, and nothing else may read the whole first",
        options_.axis, old().value(*divided).name, old().type(*divided).str(), kAlignment);
  }

 private:
  const ir::Graph& old() const { return rebuild_.old(); }
  const Node& node(std::size_t n) const { return old().nodes[n]; }

  // ---- finding

  bool over_axis(const Node& n) const {
    return n.inputs.size() == 1 && ir::axis_of_part(n.attributes.text("axis")) == options_.axis;
  }
  // The node that makes a value, if nothing but one node reads that value.
  std::optional<std::size_t> maker(ValueId id) const {
    const std::int32_t producer = uses_.producer[index(id)];
    if (producer == kNone || uses_.consumers[index(id)].size() != 1 || uses_.escapes[index(id)]) return std::nullopt;
    return static_cast<std::size_t>(producer);
  }
  std::optional<std::size_t> only_reader(ValueId id) const {
    if (uses_.consumers[index(id)].size() != 1 || uses_.escapes[index(id)]) return std::nullopt;
    return static_cast<std::size_t>(uses_.consumers[index(id)].front());
  }
  bool changes_shape(std::size_t n) const {
    return (node(n).op->name == "reshape" || node(n).op->name == "transpose") && !gone_.contains(n);
  }

  // As many parts as divide the rows, such that each begins where kernels may.
  std::int64_t parts_of(std::initializer_list<ValueId> values) const {
    for (std::int64_t parts = options_.parts; parts > 1; --parts)
      if (std::all_of(values.begin(), values.end(), [&](ValueId id) { return cuts(old().type(id), parts); }))
        return parts;
    return 1;
  }
  static bool cuts(const TensorType& type, std::int64_t parts) {
    return type.shape.rank() > 0 && type.shape[0] % parts == 0 &&
           type.bytes() / static_cast<std::size_t>(parts) % kAlignment == 0;
  }

  // By operand: whether its rows go with those of the result. Nothing: the node cannot be made in parts.
  std::optional<std::vector<bool>> rows_of(const Node& n, std::int64_t parts) const {
    if (n.on_host) return std::nullopt;
    const ir::Factors factors = n.op->factors(old().input_types(n), old().output_types(n), n.attributes);
    const int rows = factors.outputs.front().empty() ? -1 : factors.outputs.front().front();
    if (rows < 0 || factors.factors[index(rows)].kind != ir::Factor::Kind::free) return std::nullopt;
    const auto first_only = [&](const std::vector<int>& dims) {
      return std::find(dims.begin() + (dims.empty() ? 0 : 1), dims.end(), rows) == dims.end();
    };
    for (std::size_t o = 0; o < n.outputs.size(); ++o)
      if (factors.outputs[o].empty() || factors.outputs[o].front() != rows || !first_only(factors.outputs[o]) ||
          !cuts(old().type(n.outputs[o]), parts))
        return std::nullopt;
    std::vector<bool> carries;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const bool has = n.inputs[i] != kNone && !factors.inputs[i].empty() && factors.inputs[i].front() == rows;
      if (n.inputs[i] != kNone && (!first_only(factors.inputs[i]) || (has && !cuts(old().type(n.inputs[i]), parts))))
        return std::nullopt;
      carries.push_back(has);
    }
    return carries;
  }

  // Made by a product, or of what products make.
  bool is_product(ValueId sum) const {
    const auto last = maker(sum);
    if (!last || node(*last).op->name == kMatmul) return last.has_value();
    return std::any_of(node(*last).inputs.begin(), node(*last).inputs.end(), [&](ValueId id) {
      const auto term = id == kNone ? std::nullopt : maker(id);
      return term && node(*term).op->name == kMatmul;
    });
  }

  void find_sum(std::size_t n) {
    const Node& collective = node(n);
    const bool scatters = collective.op->name == ops::kReduceScatter;
    if (!scatters && collective.op->name != ops::kAllReduce) return;
    if (!over_axis(collective) || (!scatters && collective.attributes.text("reduce") != "sum")) return;
    Summing s;
    s.collective = n;
    s.sum = collective.inputs.front();
    s.result = collective.outputs.front();
    if (scatters) {
      while (const auto before = maker(s.sum)) {
        if (!changes_shape(*before)) break;
        s.shaped.push_back(*before);
        s.sum = node(*before).inputs.front();
      }
      if (const auto behind = only_reader(s.result); behind && node(*behind).op->name == "reshape") {
        s.shaped.push_back(*behind);
        s.result = node(*behind).outputs.front();
      }
      if (!scatters_second_dimension(s)) return;
    }
    if (is_product(s.sum)) products_found_.push_back(s.sum);
    s.parts = parts_of({s.sum, s.result});
    if (s.parts < 2 || !add_terms(s)) return;
    for (const auto* nodes : {&s.shaped, &s.terms}) gone_.insert(nodes->begin(), nodes->end());
    gone_.insert(n);
    sums_.emplace(n, std::move(s));
  }

  bool scatters_second_dimension(const Summing& s) const {
    const Shape& whole = old().type(s.sum).shape;
    Shape part = whole;
    if (whole.rank() < 2) return false;
    part[1] /= node(s.collective).attributes.integer("parts");
    return old().type(s.result).shape == part && whole[0] > 1;
  }

  // The product that makes the sum, or those whose results it adds up.
  bool add_terms(Summing& s) const {
    const auto last = maker(s.sum);
    const auto is_term = [&](std::optional<std::size_t> n) {
      return n && !gone_.contains(*n) && node(*n).outputs.size() == 1 && rows_of(node(*n), s.parts);
    };
    if (!is_term(last)) return false;
    bool any = node(*last).op->name == kMatmul;
    if (!any) {
      for (const ValueId id : node(*last).inputs) {
        if (id == kNone) continue;
        const auto term = maker(id);
        if (!is_term(term) || node(*term).op->name != kMatmul) continue;
        s.terms.push_back(*term);
        any = true;
      }
      std::sort(s.terms.begin(), s.terms.end());
    }
    s.terms.push_back(*last);
    return any;
  }

  void find_gather(std::size_t n) {
    const Node& collective = node(n);
    if (collective.op->name != ops::kAllGather || !over_axis(collective)) return;
    Gathering g;
    g.collective = n;
    g.own = collective.inputs.front();
    g.whole = collective.outputs.front();
    if (const auto before = maker(g.own); before && node(*before).op->name == "reshape") {
      g.shaped.push_back(*before);
      g.own = node(*before).inputs.front();
    }
    while (const auto behind = only_reader(g.whole)) {
      if (!changes_shape(*behind)) break;
      g.shaped.push_back(*behind);
      g.whole = node(*behind).outputs.front();
    }
    const auto multiplies = [&](std::int32_t reader) {
      return node(index(reader)).op->name == kMatmul && node(index(reader)).inputs.front() == g.whole;
    };
    const std::vector<std::int32_t>& readers = uses_.consumers[index(g.whole)];
    if (std::any_of(readers.begin(), readers.end(), multiplies)) products_found_.push_back(g.own);
    const Shape& own = old().type(g.own).shape;
    Shape expected = own;
    if (own.rank() < 2 || own[0] < 2) return;
    expected[1] *= collective.attributes.integer("parts");
    if (old().type(g.whole).shape != expected) return;
    g.parts = parts_of({g.own, g.whole});
    if (g.parts < 2) return;
    for (const std::int32_t consumer : uses_.consumers[index(g.whole)]) {
      const auto c = static_cast<std::size_t>(consumer);
      const Node& product = node(c);
      if (product.op->name != kMatmul || product.inputs.front() != g.whole || gone_.contains(c)) continue;
      const auto carries = rows_of(product, g.parts);
      if (!carries || !carries->front()) continue;
      // Those that the first one could have stood with.
      const bool ready = std::all_of(product.inputs.begin(), product.inputs.end(), [&](ValueId id) {
        return id == kNone || uses_.producer[index(id)] == kNone || g.products.empty() ||
               static_cast<std::size_t>(uses_.producer[index(id)]) < g.products.front();
      });
      if (ready && (g.products.empty() || node(g.products.front()).phase == product.phase)) g.products.push_back(c);
    }
    // Nothing reads the whole before its parts are multiplied.
    if (g.products.empty() ||
        static_cast<std::size_t>(*std::min_element(readers.begin(), readers.end())) < g.products.front() ||
        uses_.escapes[index(g.whole)])
      return;
    gone_.insert(g.shaped.begin(), g.shaped.end());
    gone_.insert(g.products.begin(), g.products.end());
    gone_.insert(n);
    products_.emplace(g.products.front(), n);
    gathers_.emplace(n, std::move(g));
  }

  // ---- rebuilding

  ValueId add(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes, ValueId named,
              const Node& like) {
    return rebuild_
        .add(std::string(op), std::move(inputs), std::move(attributes), old().value(named).name + ".part", like)
        .front();
  }
  ValueId with_shape(ValueId x, const Shape& wanted, ValueId named, const Node& like) {
    if (rebuild_.fresh().type(x).shape == wanted) return x;
    return add("reshape", {x}, {{"shape", Dims(wanted.begin(), wanted.end())}}, named, like);
  }
  ValueId rows(ValueId fresh, std::int64_t part, std::int64_t parts, ValueId named, const Node& like) {
    const std::int64_t each = rebuild_.fresh().type(fresh).shape[0] / parts;
    return add(ops::kRows, {fresh}, {{"start", part * each}, {"end", (part + 1) * each}}, named, like);
  }
  static Shape part_of(Shape shape, std::int64_t parts) {
    shape[0] /= parts;
    return shape;
  }

  // The parts one behind the other are the old value.
  void assemble(ValueId value, std::vector<ValueId> parts, const Node& like) {
    const ValueId whole =
        rebuild_.add(std::string(ops::kAssemble), std::move(parts), {}, old().value(value).name, like).front();
    rebuild_.fresh().value(whole).sharding = old().value(value).sharding;
    rebuild_.map(value, whole);
  }

  // One part of a node; `made` has the parts of values that are made in parts right here.
  std::vector<ValueId> part_of_node(const Node& n, std::int64_t part, std::int64_t parts,
                                    const std::map<ValueId, ValueId>& made) {
    const std::vector<bool> carries = *rows_of(n, parts);
    std::vector<ValueId> inputs;
    ir::Types types;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId id = n.inputs[i];
      if (id == kNone)
        inputs.push_back(kNone);
      else if (const auto here = made.find(id); here != made.end())
        inputs.push_back(here->second);
      else
        inputs.push_back(carries[i] ? rows(rebuild_.mapped(id), part, parts, id, n) : rebuild_.mapped(id));
      types.push_back(id == kNone ? TensorType::none() : rebuild_.fresh().type(inputs.back()));
    }
    ir::Attributes attributes = n.attributes;
    if (n.op->localize) {
      ir::Types local;
      for (const ValueId id : n.outputs) local.push_back({old().type(id).dtype, part_of(old().type(id).shape, parts)});
      for (const auto& [name, value] : n.op->localize(types, local, n.attributes)) attributes.set(name, value);
    }
    return rebuild_.add(n.op->name, std::move(inputs), std::move(attributes),
                        old().value(n.outputs.front()).name + ".part", n);
  }

  void emit(const Summing& s) {
    const Node& collective = node(s.collective);
    const bool scatters = collective.op->name == ops::kReduceScatter;
    const std::int64_t ranks = collective.attributes.integer("parts");
    std::vector<ValueId> results;
    for (std::int64_t part = 0; part < s.parts; ++part) {
      std::map<ValueId, ValueId> made;
      for (const std::size_t t : s.terms) {
        const std::vector<ValueId> outputs = part_of_node(node(t), part, s.parts, made);
        for (std::size_t o = 0; o < node(t).outputs.size(); ++o) made[node(t).outputs[o]] = outputs[o];
      }
      ValueId x = made.at(s.sum);
      const Shape own = rebuild_.fresh().type(x).shape;
      if (scatters) {
        if (own[0] > 1) {
          x = with_shape(x, {own[0], ranks, own[1] / ranks, own.elements(2, own.rank())}, s.sum, collective);
          x = add("transpose", {x}, {{"perm", Dims{1, 0, 2, 3}}}, s.sum, collective);
        }
        x = with_shape(x, {ranks, own.elements() / ranks}, s.sum, collective);
      }
      x = add(collective.op->name, {x}, collective.attributes, s.result, collective);
      results.push_back(with_shape(x, part_of(old().type(s.result).shape, s.parts), s.result, collective));
    }
    assemble(s.result, std::move(results), collective);
  }

  void emit(Gathering& g) {
    const Node& collective = node(g.collective);
    const Shape own = part_of(old().type(g.own).shape, g.parts);
    for (std::int64_t part = 0; part < g.parts; ++part) {
      const ValueId x = rows(rebuild_.mapped(g.own), part, g.parts, g.own, collective);
      ir::Attributes attributes = collective.attributes;
      attributes.set("rows", Dims{collective.attributes.integer("parts")});
      g.gathered.push_back(add(ops::kAllGather, {with_shape(x, {1, own.elements()}, g.own, collective)}, attributes,
                               g.whole, collective));
    }
  }

  // A part of what was gathered: [ranks, rows · part of the sequence · …] as [rows, sequence, …].
  ValueId part_of_whole(const Gathering& g, std::size_t part) {
    const Node& collective = node(g.collective);
    const Shape own = part_of(old().type(g.own).shape, g.parts);
    ValueId x = g.gathered[part];
    if (own[0] > 1) {
      x = with_shape(x, {collective.attributes.integer("parts"), own[0], own[1], own.elements(2, own.rank())}, g.whole,
                     collective);
      x = add("transpose", {x}, {{"perm", Dims{1, 0, 2, 3}}}, g.whole, collective);
    }
    return with_shape(x, part_of(old().type(g.whole).shape, g.parts), g.whole, collective);
  }

  void emit_products(const Gathering& g) {
    std::vector<ValueId> wholes;
    std::map<ValueId, std::vector<ValueId>> parts;  // by output
    for (std::int64_t part = 0; part < g.parts; ++part) {
      wholes.push_back(part_of_whole(g, static_cast<std::size_t>(part)));
      for (const std::size_t p : g.products) {
        const std::vector<ValueId> outputs = part_of_node(node(p), part, g.parts, {{g.whole, wholes.back()}});
        for (std::size_t o = 0; o < outputs.size(); ++o) parts[node(p).outputs[o]].push_back(outputs[o]);
      }
    }
    assemble(g.whole, std::move(wholes), node(g.collective));
    for (const std::size_t p : g.products)
      for (const ValueId id : node(p).outputs) assemble(id, parts.at(id), node(p));
  }

  const AsyncTp::Options& options_;
  Rebuild rebuild_;
  ir::Uses uses_;
  std::map<std::size_t, Summing> sums_;          // by collective
  std::map<std::size_t, Gathering> gathers_;     // by collective
  std::map<std::size_t, std::size_t> products_;  // by the first product: the gather before it
  std::set<std::size_t> gone_;                   // made in parts, with others
  std::vector<ValueId> products_found_;          // next to a collective, or what is gathered for one
};

}  // namespace

void AsyncTp::run(ir::Module& module) const {
  Decomposer decomposer(module, options_);
  if (decomposer.run() > 0 || options_.partial) return;
  refuse("parallel.async_tp = true: {}; the nearest is parallel.async_tp = false", decomposer.why_not());
}

}  // namespace trireme::passes
