#include "trireme/ops/loss/sharded_cross_entropy.h"

#include <cmath>

#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/loss/loss.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

const char* const kPartOfALoss = "graphs are sharded after their gradients were made";

TensorType rows_type(const TensorType& x) { return {DType::f32, target_type(x).shape}; }

void expect_rows_and_words(Inputs inputs, const ir::Attributes& attributes) {
  expect_logits(inputs[0], "x");
  if (inputs[1].shape.rank() != 2) fail("'weight' must be [V,D], got {}", inputs[1].str());
  expect_type(inputs[1], {inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape.back()}}, "weight");
  expect_type(inputs[2], target_type(inputs[0]), "targets");
  expect_type(inputs[3], {DType::i64, {}}, "place");
  if (attributes.integer("vocab") < 1) fail("'vocab' must be at least 1, got {}", attributes.integer("vocab"));
  if (attributes.integer("chunk") < 0) fail("'chunk' must not be negative, got {}", attributes.integer("chunk"));
}

double logits_of(Inputs inputs) {
  return static_cast<double>(inputs[2].elements()) * static_cast<double>(inputs[1].shape[0]);
}

template <class F>
std::shared_ptr<device::Kernel> each_row(const ir::KernelSpec& spec, F f) {
  return make_kernel([f, n = spec.outputs[0].elements()](const device::Launch& launch) {
    constexpr std::int64_t kBlock = 4096;
    launch.pool->ranges(n, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        launch.out<float>(0)[i] = f(launch.in<float>(0)[i], launch.in<float>(1)[i]);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_lse_terms_cpu(const ir::KernelSpec& spec) {
  return each_row(spec, [](float lse, float top) { return std::isinf(lse) && lse < 0 ? 0.0F : std::exp(lse - top); });
}

std::shared_ptr<device::Kernel> prepare_join_lse_cpu(const ir::KernelSpec& spec) {
  return each_row(spec, [](float sum, float top) { return top + std::log(sum); });
}

ir::OpDef rowwise_def(const char* name, std::vector<std::string> operands) {
  ir::OpDef def = elementwise_def(name, std::move(operands), 1, 10);
  def.no_gradient = kPartOfALoss;
  def.with_precision(ir::Precision::keep);
  def.traits.pads = false;
  return def;
}

ir::IndexRange words_of_the_whole(Inputs, const ir::Attributes& attributes) {
  return {attributes.integer("vocab"), true};
}

}  // namespace

ir::OpDef linear_lse_def() {
  ir::OpDef def;
  def.name = "linear_lse";
  def.operands = {{"x"}, {"weight"}, {"targets"}, {"place"}};
  def.attributes = {{"vocab", std::int64_t{0}}, {"chunk", std::int64_t{0}}, {"tf32", false}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows_and_words(inputs, attributes);
    return {rows_type(inputs[0]), rows_type(inputs[0])};
  };
  def.no_gradient = kPartOfALoss;
  def.index = {2, words_of_the_whole};
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = logits_of(inputs) * (10 + 2 * static_cast<double>(inputs[0].shape.back()));
    return cost;
  };
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_linear_lse_cpu, linear_lse_workspace_cpu);
  return checked(def);
}

ir::OpDef linear_cross_entropy_given_def() {
  ir::OpDef def;
  def.name = "linear_cross_entropy_given";
  def.operands = {{"x"},
                  {"weight"},
                  {"targets"},
                  {"place"},
                  {.name = "lse", .keep_f32 = true},
                  {.name = "target", .keep_f32 = true},
                  {.name = "dloss", .optional = true, .keep_f32 = true}};
  def.attributes = {{"scale", 1.0},
                    {"vocab", std::int64_t{0}},
                    {"with_gradients", false},
                    {"chunk", std::int64_t{0}},
                    {"out", std::string("same")},
                    {"tf32", false}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows_and_words(inputs, attributes);
    expect_type(inputs[4], rows_type(inputs[0]), "lse");
    expect_type(inputs[5], rows_type(inputs[0]), "target");
    if (inputs[6].present) expect_type(inputs[6], kLossType, "dloss");
    if (!attributes.boolean("with_gradients")) return {kLossType};
    return {kLossType, inputs[0], {out_dtype(attributes.text("out"), inputs[1].dtype), inputs[1].shape}};
  };
  def.no_gradient = kPartOfALoss;
  def.index = {2, words_of_the_whole};
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = outputs.size() > 1 ? logits_of(inputs) * (10 + 6 * static_cast<double>(inputs[0].shape.back())) : 0;
    return cost;
  };
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_linear_cross_entropy_given_cpu, linear_cross_entropy_given_workspace_cpu);
  return checked(def);
}

ir::OpDef lse_terms_def() {
  ir::OpDef def = rowwise_def("lse_terms", {"lse", "top"});
  on_cpu(def, prepare_lse_terms_cpu);
  return def;
}

ir::OpDef join_lse_def() {
  ir::OpDef def = rowwise_def("join_lse", {"sum", "top"});
  on_cpu(def, prepare_join_lse_cpu);
  return def;
}

void partition_linear_cross_entropy(ir::PartitionContext& p) {
  const ir::ValueId place = p.place(fmt::format("{}", fmt::join(p.input_axes(1, 0), "+")));
  const ir::Attributes& given = p.attributes();
  const ir::Attributes words{
      {"vocab", p.whole_input(1).shape[0]}, {"chunk", given.integer("chunk")}, {"tf32", given.boolean("tf32")}};
  const auto own = p.add("linear_lse", {p.input(0), p.input(1), p.input(2), place}, words);
  const ir::ValueId top = p.all_reduce(own[0], "max");
  const ir::ValueId sum = p.all_reduce(p.add("lse_terms", {own[0], top}).front());
  const ir::ValueId lse = p.add("join_lse", {sum, top}).front();
  const ir::ValueId target = p.all_reduce(own[1]);
  ir::Attributes attributes = words;
  for (const char* name : {"scale", "with_gradients", "out"}) attributes.set(name, *given.find(name));
  const auto made = p.add("linear_cross_entropy_given",
                          {p.input(0), p.input(1), p.input(2), place, lse, target, p.input(3)}, attributes);
  for (std::size_t i = 0; i < made.size(); ++i) p.set(i, made[i], i == 1);
}

}  // namespace trireme::ops
