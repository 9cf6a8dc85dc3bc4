#include "trireme/ops/shape/reduce.h"

#include <algorithm>

#include "trireme/ir/partition.h"
#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"
#include "trireme/ops/shape/dim_groups.h"

namespace trireme::ops {
namespace {

bool names(const std::vector<std::int64_t>& dims, int dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// Factors of the full shape's dimensions, and those of the dimensions that `dims` does not name.
struct FullAndRest {
  ir::Factors factors;
  std::vector<int> full;
  std::vector<int> rest;
};
FullAndRest full_and_rest(const Shape& shape, const std::vector<std::int64_t>& dims, const ir::Factor& of_dims) {
  FullAndRest f;
  for (int i = 0; i < shape.rank(); ++i) {
    f.factors.factors.push_back(names(dims, i) ? of_dims : ir::Factor{});
    f.factors.factors.back().name = "d" + std::to_string(i);
    f.full.push_back(i);
    if (!names(dims, i)) f.rest.push_back(i);
  }
  return f;
}

}  // namespace

ir::OpDef reduce_def() {
  ir::OpDef def;
  def.name = "reduce";
  def.operands = {{"x"}};
  def.attributes = {{"kind", std::string("sum")}, {"dims", std::vector<std::int64_t>()}, {"out", std::string("same")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(inputs[0], "x");
    const std::string& kind = attributes.text("kind");
    if (kind != "sum" && kind != "mean" && kind != "max")
      fail("'kind' must be \"sum\", \"mean\" or \"max\", got \"{}\"", kind);
    return {{out_dtype(attributes.text("out"), inputs[0].dtype),
             without_dims(inputs[0].shape, attributes.integers("dims"))}};
  };
  def.gradient = [](ir::GradientContext& g) {
    const std::string& kind = g.attributes().text("kind");
    if (kind == "max") fail("reduce to the maximum has no gradient");
    const TensorType& x = g.input(0).type();
    ir::Value dy = g.grad();
    if (kind == "mean") {
      const double count = static_cast<double>(x.elements()) / static_cast<double>(dy.type().elements());
      dy = ir::apply1("scale", {dy}, {{"factor", 1 / count}});
    }
    if (dy.dtype() != x.dtype) dy = ir::apply1("cast", {dy}, {{"to", std::string(name_of(x.dtype))}});
    g.set(0, broadcast(dy, x.shape, g.attributes().integers("dims")));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    // Means of slices do not add up to the mean.
    const bool mean = attributes.text("kind") == "mean";
    const bool max = attributes.text("kind") == "max";  // a zero may be the largest
    FullAndRest f =
        full_and_rest(inputs[0].shape, attributes.integers("dims"),
                      {.kind = mean ? ir::Factor::Kind::partitioned : ir::Factor::Kind::free, .exact = max});
    f.factors.inputs = {f.full};
    f.factors.outputs = {f.rest};
    f.factors.max_reduced = max;
    return f.factors;
  };
  // The mean of a slice counts by its part of the elements, so that the terms add up.
  def.partition = [](ir::PartitionContext& p) {
    const std::vector<std::int64_t>& dims = p.attributes().integers("dims");
    double part = 1;
    for (int d = 0; d < p.whole_input(0).shape.rank(); ++d)
      if (names(dims, d))
        part *= static_cast<double>(p.type(p.input(0)).shape[d]) / static_cast<double>(p.whole_input(0).shape[d]);
    const ir::ValueId mean = p.add("reduce", {p.input(0)}, p.attributes()).front();
    p.set(0, p.add("scale", {mean}, {{"factor", part}}).front(), true);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.accumulates = true;
  def.traits.pads = true;
  on_cpu(def, prepare_reduce_cpu, reduce_workspace);
  return checked(std::move(def));
}

ir::Value reduce(ir::Value x, const std::vector<std::int64_t>& dims, const std::string& kind, const std::string& out) {
  return ir::apply1("reduce", {x}, {{"kind", kind}, {"dims", dims}, {"out", out}});
}

ir::OpDef broadcast_def() {
  ir::OpDef def;
  def.name = "broadcast";
  def.operands = {{"x"}};
  def.attributes = {{"shape", std::vector<std::int64_t>()}, {"dims", std::vector<std::int64_t>()}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const Shape shape{std::span<const std::int64_t>(attributes.integers("shape"))};
    const Shape rest = without_dims(shape, attributes.integers("dims"));
    if (!(rest == inputs[0].shape))
      fail("'x' must have shape {} ({} without dimensions {}), got {}", rest.str(), shape.str(),
           Shape(attributes.integers("dims")).str(), inputs[0].str());
    return {{inputs[0].dtype, shape}};
  };
  def.gradient = [](ir::GradientContext& g) { g.set(0, reduce(g.grad(), g.attributes().integers("dims"))); };
  def.factors = [](std::span<const TensorType>, std::span<const TensorType> outputs, const ir::Attributes& attributes) {
    FullAndRest f = full_and_rest(outputs[0].shape, attributes.integers("dims"), {.exact = true});
    f.factors.inputs = {f.rest};
    f.factors.outputs = {f.full};
    return f.factors;
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 0);
  };
  def.with_precision(ir::Precision::follow);
  def.localize = local_shape;
  def.traits.pads = true;
  on_cpu(def, prepare_broadcast_cpu);
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::Value broadcast(ir::Value x, const Shape& shape, const std::vector<std::int64_t>& dims) {
  return ir::apply1("broadcast", {x},
                    {{"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}, {"dims", dims}});
}

}  // namespace trireme::ops
