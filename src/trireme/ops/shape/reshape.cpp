#include "trireme/ops/shape/reshape.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

Shape resolve(const Shape& from, const std::vector<std::int64_t>& wanted) {
  Shape shape{std::span<const std::int64_t>(wanted)};
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && unknown < 0)
      unknown = i;
    else if (shape[i] < 0)
      fail("'shape' must have no negative extent but one -1, got {}", shape.str());
    else
      known *= shape[i];
  }
  if (unknown >= 0 && known > 0) shape[unknown] = from.elements() / known;
  if (unknown >= 0 && known == 0) fail("the -1 in {} could be anything", shape.str());
  if (shape.elements() != from.elements())
    fail("'shape' {} must have the {} elements of {}", Shape(wanted).str(), from.elements(), from.str());
  return shape;
}

// Runs of dimensions with equal products go together: [b, s, h·d] against [b, s, h, d] gives b, s and a run {h·d} of
// {h, d}. Within a run only the first dimension (past extents of 1) may be cut, on both sides in as many pieces, since
// only then is a piece contiguous in both.
ir::Factors reshape_factors(const Shape& from, const Shape& to) {
  ir::Factors factors;
  std::vector<int> in(static_cast<std::size_t>(from.rank()));
  std::vector<int> out(static_cast<std::size_t>(to.rank()));
  const auto fresh = [&](ir::Factor::Kind kind) {
    factors.factors.push_back({"d" + std::to_string(factors.factors.size()), kind});
    return static_cast<int>(factors.factors.size()) - 1;
  };
  // Marks dimensions [begin, end) of one side: the first that is not 1 carries the run's factor, the others stay whole.
  const auto mark = [&](const Shape& shape, std::vector<int>& dims, int begin, int end, int shared) {
    bool first = true;
    for (int i = begin; i < end; ++i) {
      const bool carries = first && shape[i] != 1;
      dims[static_cast<std::size_t>(i)] = carries ? shared : fresh(ir::Factor::Kind::whole);
      first = first && !carries;
    }
  };
  int i = 0;
  int j = 0;
  if (from.elements() == 0) {  // extents say nothing then
    for (int& dim : in) dim = fresh(ir::Factor::Kind::whole);
    for (int& dim : out) dim = fresh(ir::Factor::Kind::whole);
    i = from.rank();
    j = to.rank();
  }
  while (i < from.rank() || j < to.rank()) {
    const int first_i = i;
    const int first_j = j;
    std::int64_t left = i < from.rank() ? from[i++] : 1;
    std::int64_t right = j < to.rank() ? to[j++] : 1;
    while (left != right) {
      if (left < right)
        left *= from[i++];
      else
        right *= to[j++];
    }
    const int shared = fresh(left > 1 ? ir::Factor::Kind::free : ir::Factor::Kind::whole);
    mark(from, in, first_i, i, shared);
    mark(to, out, first_j, j, shared);
  }
  factors.inputs = {in};
  factors.outputs = {out};
  return factors;
}

}  // namespace

ir::OpDef reshape_def() {
  ir::OpDef def;
  def.name = "reshape";
  def.operands = {{"x"}};
  def.attributes = {{"shape", std::vector<std::int64_t>()}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    return {{inputs[0].dtype, resolve(inputs[0].shape, attributes.integers("shape"))}};
  };
  def.gradient = [](ir::GradientContext& g) { g.set(0, reshape(g.grad(), g.input(0).shape())); };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return reshape_factors(inputs[0].shape, outputs[0].shape);
  };
  def.cost = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) { return ir::Cost{}; };
  def.with_precision(ir::Precision::follow);
  def.localize = local_shape;
  def.traits.view = true;
  def.traits.linear = ir::Linear::jointly;
  return checked(std::move(def));
}

ir::Value reshape(ir::Value x, const Shape& shape) {
  return ir::apply1("reshape", {x}, {{"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}});
}

}  // namespace trireme::ops
