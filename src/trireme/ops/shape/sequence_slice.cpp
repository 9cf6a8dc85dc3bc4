#include "trireme/ops/shape/sequence_slice.h"

#include <algorithm>
#include <cstring>

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const Shape& shape = spec.inputs[0].shape;
  const std::int64_t outer = shape.elements(0, dim);
  const std::int64_t whole = shape[dim];
  const std::int64_t part = spec.attributes.integer("extent");
  const std::size_t bytes =
      static_cast<std::size_t>(shape.elements(dim + 1, shape.rank())) * size_of(spec.inputs[0].dtype);
  return make_kernel([=](const device::Launch& launch) {
    const std::int32_t* position = launch.in<std::int32_t>(1);
    const std::int64_t first = position == nullptr ? 0 : *position;
    if (first < 0) fail("position {} is before the sequence", first);
    const auto* from = launch.in<std::byte>(0);
    auto* to = launch.out<std::byte>(0);
    constexpr std::int64_t kTogether = 64;
    launch.pool->ranges(outer * part, kTogether, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t source = row / part * whole + std::min(first + row % part, whole - 1);
        std::memcpy(to + static_cast<std::size_t>(row) * bytes, from + static_cast<std::size_t>(source) * bytes, bytes);
      }
    });
  });
}

}  // namespace

ir::OpDef sequence_slice_def() {
  ir::OpDef def;
  def.name = "sequence_slice";
  def.operands = {{"x"}, {.name = "position", .optional = true}};
  def.attributes = {{"dim", std::int64_t{0}}, {"extent", std::int64_t{0}}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    TensorType type = inputs[0];
    const std::int64_t dim = attributes.integer("dim");
    const std::int64_t extent = attributes.integer("extent");
    if (dim < 0 || dim >= type.shape.rank()) fail("'dim' must be a dimension of {}, got {}", type.str(), dim);
    std::int64_t& along = type.shape[static_cast<int>(dim)];
    if (extent < 1 || along < 1) fail("'extent' must be at least 1, got {} of {}", extent, inputs[0].str());
    if (inputs[1].present) expect_type(inputs[1], {DType::i32, {}}, "position");
    along = extent;
    return {type};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.input(1)) fail("sequence_slice has no gradient at a given position");
    const std::int64_t dim = g.attributes().integer("dim");
    g.set(0,
          ir::apply1("slice_grad", {g.grad()}, {{"dim", dim}, {"extent", g.input(0).shape()[static_cast<int>(dim)]}}));
  };
  def.factors = [](Inputs inputs, Inputs, const ir::Attributes& attributes) {
    std::string from;
    std::string to;
    for (int i = 0; i < inputs[0].shape.rank(); ++i) {
      const bool along = i == attributes.integer("dim");
      from += along ? "s! " : fmt::format("d{} ", i);
      to += along ? "t! " : fmt::format("d{} ", i);
    }
    return ir::parse_factors(from + ", - -> " + to);
  };
  def.cost = [](Inputs, Inputs outputs, const ir::Attributes&) -> ir::Cost {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return {0, bytes, bytes};
  };
  def.with_precision(ir::Precision::low);  // as other tables that are looked up
  def.traits.position_operand = 1;
  on_cpu(def, prepare);
  return checked(std::move(def));
}

}  // namespace trireme::ops
