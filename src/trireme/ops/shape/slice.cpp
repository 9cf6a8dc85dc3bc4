#include "trireme/ops/shape/slice.h"

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"

namespace trireme::ops {
namespace {

int dim_of(const TensorType& x, const ir::Attributes& attributes) {
  const std::int64_t dim = attributes.integer("dim");
  if (dim < 0 || dim >= x.shape.rank()) fail("'dim' must be a dimension of {}, got {}", x.str(), dim);
  return static_cast<int>(dim);
}

// Everything but `dim` may be cut.
ir::Factors factors_but(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                        const ir::Attributes& attributes) {
  ir::Factors factors;
  const int rank = outputs[0].shape.rank();
  const auto dim = static_cast<int>(attributes.integer("dim"));
  std::vector<int> dims;
  for (int i = 0; i < rank; ++i) {
    factors.factors.push_back({"d" + std::to_string(i), i == dim ? ir::Factor::Kind::whole : ir::Factor::Kind::free});
    dims.push_back(i);
  }
  // The cut dimension has another extent on each side, so it is another factor.
  std::vector<int> result = dims;
  result[static_cast<std::size_t>(dim)] = rank;
  factors.factors.push_back({"out", ir::Factor::Kind::whole});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    factors.inputs.push_back(dims);
    if (i > 0) {
      factors.inputs.back()[static_cast<std::size_t>(dim)] = static_cast<int>(factors.factors.size());
      factors.factors.push_back({"in" + std::to_string(i), ir::Factor::Kind::whole});
    }
  }
  factors.outputs = {result};
  return factors;
}

ir::Cost copy_cost(std::span<const TensorType>, std::span<const TensorType> outputs, const ir::Attributes&) {
  const auto bytes = static_cast<double>(outputs[0].bytes());
  return {0, bytes, bytes};
}

ir::OpDef copy_def(std::string name, std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::move(name);
  def.operands = {{"x"}};
  def.attributes = std::move(attributes);
  def.factors = factors_but;
  def.cost = copy_cost;
  def.with_precision(ir::Precision::follow);
  return def;
}

}  // namespace

ir::OpDef slice_def() {
  ir::OpDef def = copy_def("slice", {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"end", std::int64_t{0}}});
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    TensorType type = inputs[0];
    const int dim = dim_of(type, attributes);
    const std::int64_t start = attributes.integer("start");
    const std::int64_t end = attributes.integer("end");
    if (start < 0 || end < start || end > type.shape[dim])
      fail("[{}, {}) must lie in dimension {} of {}", start, end, dim, inputs[0].str());
    type.shape[dim] = end - start;
    return {type};
  };
  def.gradient = [](ir::GradientContext& g) {
    const std::int64_t dim = g.attributes().integer("dim");
    g.set(0, ir::apply1("slice_grad", {g.grad()},
                        {{"dim", dim},
                         {"start", g.attributes().integer("start")},
                         {"extent", g.input(0).shape()[static_cast<int>(dim)]}}));
  };
  on_cpu(def, prepare_slice_cpu);
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::Value slice(ir::Value x, int dim, std::int64_t start, std::int64_t end) {
  return ir::apply1("slice", {x}, {{"dim", std::int64_t{dim}}, {"start", start}, {"end", end}});
}

ir::OpDef slice_grad_def() {
  ir::OpDef def =
      copy_def("slice_grad", {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"extent", std::int64_t{0}}});
  def.operands = {{"dy"}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    TensorType type = inputs[0];
    const int dim = dim_of(type, attributes);
    const std::int64_t start = attributes.integer("start");
    const std::int64_t extent = attributes.integer("extent");
    if (start < 0 || start + type.shape[dim] > extent)
      fail("{} must fit at {} in dimension {} of extent {}", inputs[0].str(), start, dim, extent);
    type.shape[dim] = extent;
    return {type};
  };
  def.gradient = [](ir::GradientContext& g) {
    const auto dim = static_cast<int>(g.attributes().integer("dim"));
    const std::int64_t start = g.attributes().integer("start");
    g.set(0, slice(g.grad(), dim, start, start + g.input(0).shape()[dim]));
  };
  on_cpu(def, prepare_slice_grad_cpu);
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::OpDef slice_update_def() {
  ir::OpDef def = copy_def("slice_update", {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}});
  def.operands = {{"x"}, {"part"}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const int dim = dim_of(inputs[0], attributes);
    const std::int64_t start = attributes.integer("start");
    TensorType expected = inputs[0];
    if (inputs[1].shape.rank() == inputs[0].shape.rank()) expected.shape[dim] = inputs[1].shape[dim];
    expect_type(inputs[1], expected, "part");
    if (start < 0 || start + inputs[1].shape[dim] > inputs[0].shape[dim])
      fail("{} must fit at {} in dimension {} of {}", inputs[1].str(), start, dim, inputs[0].str());
    return {inputs[0]};
  };
  def.no_gradient = "it is made of other ops after gradients are taken";
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const auto bytes = static_cast<double>(inputs[1].bytes());
    return ir::Cost{0, bytes, bytes};
  };
  on_cpu(def, prepare_slice_update_cpu);
  def.traits.in_place = {{0, 0}};
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::OpDef concat_def() {
  ir::OpDef def = copy_def("concat", {{"dim", std::int64_t{0}}});
  def.operands = {{.name = "xs", .variadic = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    if (inputs.empty()) fail("expected at least one operand, got none");
    TensorType type = inputs[0];
    const int dim = dim_of(type, attributes);
    for (const TensorType& input : inputs.subspan(1)) {
      TensorType expected = inputs[0];
      if (input.shape.rank() == type.shape.rank()) expected.shape[dim] = input.shape[dim];
      expect_type(input, expected, "xs");
      type.shape[dim] += input.shape[dim];
    }
    return {type};
  };
  def.gradient = [](ir::GradientContext& g) {
    const auto dim = static_cast<int>(g.attributes().integer("dim"));
    std::int64_t start = 0;
    for (std::size_t i = 0; i < g.inputs(); ++i) {
      const std::int64_t end = start + g.input(i).shape()[dim];
      if (g.needs(i)) g.set(i, slice(g.grad(), dim, start, end));
      start = end;
    }
  };
  on_cpu(def, prepare_concat_cpu);
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::Value concat(std::vector<ir::Value> xs, int dim) {
  return ir::apply1("concat", std::move(xs), {{"dim", std::int64_t{dim}}});
}

}  // namespace trireme::ops
