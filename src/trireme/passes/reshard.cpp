#include "trireme/passes/reshard.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/slice.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"

namespace trireme::passes {
namespace {

using ir::ValueId;
using Dims = std::vector<std::int64_t>;

// Collectives see a tensor as equal parts along its first dimension.
class Resharder {
 public:
  Resharder(Rebuild& rebuild, const RouteStep& step, const ir::Mesh& mesh, const std::string& label,
            const ir::Node& like)
      : rebuild_(rebuild), step_(step), parts_(mesh.size_of(step.axis)), label_(label + "." + step.axis), like_(like) {
    std::replace(label_.begin(), label_.end(), '+', '-');
  }

  ValueId all_reduce(ValueId x) {
    ir::Attributes attributes = over_axis();
    attributes.set("reduce", std::string(step_.reduce == ir::Sharding::Reduce::max ? "max" : "sum"));
    return add(ops::kAllReduce, x, attributes);
  }

  // [A, B, C] of each rank to [A, whole, C].
  ValueId all_gather(ValueId x, int dim, std::int64_t whole) {
    const Shape own = shape(x);
    if (own.elements(0, dim) == 1) return with_shape(gathered_rows(rows(x, dim), whole), extended(own, dim, whole));
    const std::int64_t before = own.elements(0, dim);
    const std::int64_t inner = own.elements(dim + 1, own.rank());
    ValueId all = gathered_rows(with_shape(x, {1, own.elements()}), parts_);
    all = with_shape(all, {parts_, before, own[dim], inner});
    all = with_shape(transpose(all, {1, 0, 2, 3}), {before, parts_ * own[dim], inner});
    if (parts_ * own[dim] != whole)  // the last parts reach beyond the end
      all = add("slice", all, {{"dim", std::int64_t{1}}, {"start", std::int64_t{0}}, {"end", whole}});
    return with_shape(all, extended(own, dim, whole));
  }

  ValueId reduce_scatter(ValueId x, int dim) {
    const Shape own = shape(x);
    const Shape part = extended(own, dim, own[dim] / parts_);
    return with_shape(add(ops::kReduceScatter, parts_first(x, dim), over_axis()), part);
  }

  // With zeros behind its end, so that the parts are equal.
  ValueId padded(ValueId x, int dim) {
    const std::int64_t beyond = shape(x)[dim] % parts_;
    if (beyond == 0) return x;
    return add("slice_grad", x,
               {{"dim", std::int64_t{dim}}, {"start", std::int64_t{0}}, {"extent", shape(x)[dim] + parts_ - beyond}});
  }

  ValueId slice(ValueId x, int dim) {
    x = padded(x, dim);
    const Shape own = shape(x);
    const Shape part = extended(own, dim, own[dim] / parts_);
    return with_shape(add(ops::kOwnRows, copy_of_own(parts_first(x, dim)), over_axis()), part);
  }

  // Parts of `from` become parts of `to`.
  ValueId all_to_all(ValueId x, int from, int to) {
    const Shape own = shape(x);
    Shape sent = extended(own, to, own[to] / parts_);
    // Row r of what arrives is the part that rank r had of dimension `from`.
    ValueId all = add(ops::kAllToAll, parts_first(x, to), over_axis());
    const std::int64_t before = sent.elements(0, from);
    const std::int64_t inner = sent.elements(from + 1, sent.rank());
    all = with_shape(all, {parts_, before, sent[from], inner});
    if (before > 1) all = transpose(all, {1, 0, 2, 3});
    sent[from] *= parts_;
    return with_shape(all, sent);
  }

  // The same of slices of true extents: `whole` elements of which this rank is at `place`.
  ValueId spatial_gather(ValueId x, int dim, std::int64_t whole, int place) {
    std::vector<ir::Range> have;
    for (std::int64_t r = 0; r < parts_; ++r) have.push_back(ir::spatial_shard(whole, parts_, r));
    const std::vector<ir::Range> need(have.size(), {0, whole});
    return add(ops::kHaloExchange, x, ops::Halo(dim, place, have, need).attributes(step_.axis));
  }
  ValueId spatial_slice(ValueId x, int dim, int place) {
    const ir::Range own = ir::spatial_shard(shape(x)[dim], parts_, place);
    return add("slice", x, {{"dim", std::int64_t{dim}}, {"start", own.first}, {"end", own.last}});
  }

 private:
  const Shape& shape(ValueId x) const { return rebuild_.fresh().type(x).shape; }
  ir::Attributes over_axis() const { return {{"axis", step_.axis}, {"parts", static_cast<std::int64_t>(parts_)}}; }

  static Shape extended(Shape shape, int dim, std::int64_t extent) {
    shape[dim] = extent;
    return shape;
  }

  ValueId add(std::string_view op, ValueId x, ir::Attributes attributes) {
    return rebuild_.add(std::string(op), {x}, std::move(attributes), label_, like_).front();
  }
  ValueId with_shape(ValueId x, const Shape& wanted) {
    if (shape(x) == wanted) return x;
    return add("reshape", x, {{"shape", Dims(wanted.begin(), wanted.end())}});
  }
  ValueId transpose(ValueId x, Dims perm) { return add("transpose", x, {{"perm", std::move(perm)}}); }

  // A view of a rank's own rows lies where its place along one axis says: along another they are taken of a copy.
  ValueId copy_of_own(ValueId x) {
    ValueId source = x;
    const std::vector<ir::Node>& nodes = rebuild_.fresh().nodes;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (node->outputs.front() != source || !node->op->traits.view) continue;
      if (node->op->name == ops::kOwnRows) return add("concat", x, {{"dim", std::int64_t{0}}});
      source = node->inputs.front();
    }
    return x;
  }

  // As rows of dimension `dim`, before which there is nothing.
  ValueId rows(ValueId x, int dim) {
    const Shape& own = shape(x);
    return with_shape(x, {own[dim], own.elements(dim + 1, own.rank())});
  }
  ValueId gathered_rows(ValueId x, std::int64_t whole) {
    ir::Attributes attributes = over_axis();
    attributes.set("rows", Dims{whole});
    return add(ops::kAllGather, x, attributes);
  }

  // [A, parts·B, C] as [parts, A·B·C]: the part of every rank one behind the other.
  ValueId parts_first(ValueId x, int dim) {
    const Shape own = shape(x);
    const std::int64_t before = own.elements(0, dim);
    const std::int64_t inner = own.elements(dim + 1, own.rank());
    TRI_CHECK(own[dim] % parts_ == 0, "{} in {} parts", own.str(), parts_);
    ValueId split = x;
    if (before > 1) split = transpose(with_shape(x, {before, parts_, own[dim] / parts_, inner}), {1, 0, 2, 3});
    return with_shape(split, {parts_, own.elements() / parts_});
  }

  Rebuild& rebuild_;
  const RouteStep& step_;
  std::int64_t parts_;
  std::string label_;
  const ir::Node& like_;
};

}  // namespace

ValueId reshard(Rebuild& rebuild, ValueId value, const TensorType& type, const ir::Sharding& sharding,
                const RouteStep& step, const ir::Mesh& mesh, const Places& places, const std::string& label,
                const ir::Node& like) {
  Resharder r(rebuild, step, mesh, label, like);
  ValueId result = value;
  const ir::Sharding next = after(sharding, step);
  const Shape local = local_type(type, next, mesh, places).shape;
  const bool spatial = ir::is_spatial(step.axis);
  switch (step.kind) {
    case RouteStep::Kind::slice:
      if (spatial) {
        result = r.spatial_slice(value, step.dim, places.at(step.axis));
        break;
      }
      // A rank's place is along one axis at a time, the outermost first.
      result = r.padded(value, step.dim);
      for (const std::string& axis : split(step.axis, '+')) {
        RouteStep own = step;
        own.axis = axis;
        result = Resharder(rebuild, own, mesh, label, like).slice(result, step.dim);
      }
      break;
    case RouteStep::Kind::all_gather:
      result = spatial ? r.spatial_gather(value, step.dim, type.shape[step.dim], places.at(step.axis))
                       : r.all_gather(value, step.dim, local[step.dim]);
      break;
    case RouteStep::Kind::all_reduce: result = r.all_reduce(value); break;
    case RouteStep::Kind::reduce_scatter: result = r.reduce_scatter(value, step.dim); break;
    case RouteStep::Kind::all_to_all: result = r.all_to_all(value, step.dim, step.to); break;
  }
  TRI_CHECK(rebuild.fresh().type(result).shape == local, "{} gives {}, expected {}", step.str(),
            rebuild.fresh().type(result).shape.str(), local.str());
  rebuild.fresh().value(result).sharding = next;
  return result;
}

}  // namespace trireme::passes
