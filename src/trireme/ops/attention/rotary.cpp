#include "trireme/ops/attention/rotary.h"

#include <cmath>
#include <numbers>

#include "trireme/ops/define.h"

namespace trireme::ops {

std::vector<double> rotary_frequencies(std::int64_t dim, const ir::Attributes& attributes) {
  const std::string& scaling = attributes.text("scaling");
  const double factor = attributes.real("factor"), low = attributes.real("low"), high = attributes.real("high");
  const auto original = static_cast<double>(attributes.integer("original"));
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double plain = std::pow(attributes.real("theta"), -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    double frequency = plain;
    if (scaling == "linear") frequency = plain / factor;
    if (scaling == "llama3") {
      // How often the wave turns within the original context: few turns are stretched, many are kept.
      const double turns = original * plain / (2 * std::numbers::pi);
      const double kept = turns < low ? 0 : turns > high ? 1 : (turns - low) / (high - low);
      frequency = (1 - kept) * plain / factor + kept * plain;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

ir::OpDef rotary_def() {
  ir::OpDef def;
  def.name = "rotary";
  def.operands = {{"x"}, {.name = "offset", .optional = true}};
  def.attributes = {{"theta", 10000.0}, {"inverse", false}, {"scaling", std::string("none")}, {"factor", 1.0},
                    {"low", 1.0},       {"high", 4.0},      {"original", std::int64_t{8192}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const TensorType& x = inputs[0];
    expect_compute(x, "x");
    if (x.shape.rank() != 4 || x.shape[3] % 2 != 0) fail("'x' must be [b,s,h,d] with d even, got {}", x.str());
    if (inputs[1].present) expect_type(inputs[1], {DType::i32, {}}, "offset");
    const std::string& scaling = attributes.text("scaling");
    if (scaling != "none" && scaling != "linear" && scaling != "llama3")
      fail("'scaling' must be \"none\", \"linear\" or \"llama3\", got \"{}\"", scaling);
    if (!(attributes.real("theta") > 0)) fail("'theta' must be positive, got {}", attributes.real("theta"));
    if (!(attributes.real("factor") > 0)) fail("'factor' must be positive, got {}", attributes.real("factor"));
    if (scaling == "llama3" && !(attributes.real("high") > attributes.real("low")))
      fail("'high' must be above 'low', got {} and {}", attributes.real("high"), attributes.real("low"));
    return {x};
  };
  def.gradient = [](ir::GradientContext& g) {
    ir::Attributes attributes = g.attributes();
    attributes.set("inverse", !attributes.boolean("inverse"));
    g.set(0, ir::apply1("rotary", {g.grad(), g.input(1)}, attributes));
  };
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("b s! h d!, - -> b s! h d!");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 3);
  };
  def.traits.linear = ir::Linear::jointly;
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}};
  def.traits.position_operand = 1;
  on_cpu(def, prepare_rotary_cpu);
  return checked(def);
}

}  // namespace trireme::ops
