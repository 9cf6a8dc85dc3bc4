#include "trireme/ops/random/random_init.h"

#include <algorithm>

#include "trireme/core/rng.h"
#include "trireme/ir/partition.h"
#include "trireme/ops/define.h"
#include "trireme/ops/random/cpu_kernels.h"
#include "trireme/ops/random/window.h"

namespace trireme::ops {

ir::OpDef random_init_def() {
  ir::OpDef def;
  def.name = "random_init";
  def.operands = {{.name = "seed"}, {.name = "places", .variadic = true}};
  def.attributes = {{"kind", std::string("normal")},
                    {"a", 0.0},
                    {"site", std::int64_t{0}},
                    {"shape", std::vector<std::int64_t>()},
                    {"dtype", std::string("f32")}};
  add_window(def.attributes);
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_type(inputs[0], {DType::i64, {}}, "seed");
    for (const TensorType& place : inputs.subspan(1)) expect_type(place, {DType::i64, {}}, "places");
    const std::string& kind = attributes.text("kind");
    if (kind != "normal" && kind != "uniform" && kind != "constant" && kind != "zeros")
      fail("'kind' must be \"normal\", \"uniform\", \"constant\" or \"zeros\", got \"{}\"", kind);
    const TensorType type = {dtype_of(attributes.text("dtype")), Shape(attributes.integers("shape"))};
    if (kind != "zeros") expect_compute(type, "dtype");
    check_window(attributes, inputs.size() - 1);
    for (const std::int64_t extent : type.shape)
      if (extent < 0) fail("'shape' must have no negative extent, got {}", type.shape.str());
    return {type};
  };
  def.no_gradient = "a start value depends on nothing that is trained";
  // An element's number is its index in the whole tensor, which a shard has to know.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Factors factors = aligned_factors({}, outputs);
    for (ir::Factor& factor : factors.factors) factor.kind = ir::Factor::Kind::partitioned;
    factors.inputs.resize(inputs.size());
    return factors;
  };
  def.partition = [](ir::PartitionContext& p) {
    std::vector<ir::ValueId> inputs = {p.input(0)};
    const ir::Attributes changed = partition_window(p, 0, inputs);
    ir::Attributes attributes = p.attributes();
    for (const auto& [name, value] : changed) attributes.set(name, value);
    p.set(0, p.add("random_init", inputs, attributes).front());
  };
  def.traits.pads = true;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 60);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_random_init_cpu);
  return checked(std::move(def));
}

void random_elements(const std::string& kind, double a, std::uint64_t seed, std::uint64_t site, std::int64_t first,
                     std::span<float> out) {
  const auto scale = static_cast<float>(a);
  if (kind == "constant" || kind == "zeros") {
    std::fill(out.begin(), out.end(), kind == "constant" ? scale : 0.0F);
    return;
  }
  const bool normal = kind == "normal";
  const RandomStream stream{seed, site, 0};
  const auto begin = static_cast<std::uint64_t>(first);
  const std::uint64_t end = begin + out.size();
  for (std::uint64_t quad = begin / 4; quad * 4 < end; ++quad) {
    const auto words = stream.words(0, quad);
    float values[4];
    for (std::size_t i = 0; i < 4; i += 2) {
      if (normal) {
        const auto pair = to_normal(words[i], words[i + 1]);
        values[i] = pair[0] * scale;
        values[i + 1] = pair[1] * scale;
      } else {
        values[i] = (2 * to_unit(words[i]) - 1) * scale;
        values[i + 1] = (2 * to_unit(words[i + 1]) - 1) * scale;
      }
    }
    for (std::uint64_t i = 0; i < 4; ++i)
      if (const std::uint64_t e = quad * 4 + i; e >= begin && e < end) out[e - begin] = values[i];
  }
}

}  // namespace trireme::ops
