#include "trireme/ops/matmul/matmul.h"

#include "trireme/ir/partition.h"
#include "trireme/ops/activation.h"
#include "trireme/ops/define.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_matmul_cpu(const ir::KernelSpec& spec);
std::size_t matmul_cpu_workspace(const ir::KernelSpec& spec);

MatmulProblem matmul_problem(const TensorType& a, const TensorType& b, const ir::Attributes& attributes) {
  const auto split_of = [&](const TensorType& type, const char* attribute) {
    const std::int64_t given = attributes.integer(attribute);
    const std::int64_t split = given == -1 ? type.shape.rank() - 1 : given;
    if (split < 0 || split > type.shape.rank())
      fail("'{}' must be -1 or from 0 to {}, the operand's rank; got {} for {}", attribute, type.shape.rank(), given,
           type.str());
    return static_cast<int>(split);
  };
  MatmulProblem p;
  p.trans_a = attributes.boolean("trans_a");
  p.trans_b = attributes.boolean("trans_b");
  p.a_split = split_of(a, "a_split");
  p.b_split = split_of(b, "b_split");
  const Shape a_first = a.shape.slice(0, p.a_split);
  const Shape a_second = a.shape.slice(p.a_split, a.shape.rank());
  const Shape b_first = b.shape.slice(0, p.b_split);
  const Shape b_second = b.shape.slice(p.b_split, b.shape.rank());
  p.a_free = p.trans_a ? a_second : a_first;
  p.contracted = p.trans_a ? a_first : a_second;
  p.b_free = p.trans_b ? b_first : b_second;
  const Shape& b_contracted = p.trans_b ? b_second : b_first;
  if (p.contracted != b_contracted)
    fail("the contracted dimensions differ: {} of a {} and {} of b {}", p.contracted.str(), a.str(), b_contracted.str(),
         b.str());
  p.m = p.a_free.elements();
  p.n = p.b_free.elements();
  p.k = p.contracted.elements();
  if (p.k < 1) fail("nothing to contract: {} of a {}", p.contracted.str(), a.str());
  return p;
}

namespace {

ir::Types infer(std::span<const TensorType> in, const ir::Attributes& attributes) {
  const TensorType& a = in[0];
  const TensorType& b = in[1];
  const TensorType& bias = in[2];
  const TensorType& aux = in[3];
  expect_compute(a, "a");
  expect_dtype(b, a.dtype, "b");
  const MatmulProblem p = matmul_problem(a, b, attributes);
  TensorType y{out_dtype(attributes.text("out"), a.dtype), p.a_free + p.b_free};
  if (bias.present) {
    expect_compute(bias, "bias");
    expect_shape(bias, p.b_free, "bias");
  }
  const std::string& activation = attributes.text("activation");
  const std::string& derivative = attributes.text("activation_grad");
  with_activation(activation, [](auto) {});
  with_activation(derivative, [](auto) {});
  const bool add = attributes.boolean("add");
  if (aux.present != (derivative != "none" || add))
    fail("'aux' goes with 'activation_grad' or 'add': it is {}, activation_grad is \"{}\" and add is {}",
         aux.present ? "given" : "absent", derivative, add);
  if (add) {
    expect_type(aux, y, "aux");
    if (derivative != "none" || activation != "none" || bias.present || attributes.boolean("save_pre"))
      fail("'add' goes with neither bias, 'activation', 'activation_grad' nor 'save_pre'");
  }
  if (derivative != "none") {
    expect_type(aux, {a.dtype, y.shape}, "aux");
    if (activation != "none" || bias.present || attributes.boolean("save_pre"))
      fail("'activation_grad' goes with neither bias, 'activation' nor 'save_pre'");
  }
  if (attributes.boolean("save_pre")) return {y, y};
  return {y};
}

void matmul_gradient(ir::GradientContext& g) {
  const ir::Attributes attributes = g.attributes();  // a copy: new nodes move the old ones
  if (attributes.text("activation") != "none" || attributes.text("activation_grad") != "none" ||
      attributes.boolean("add"))
    fail("matmul with a fused activation or sum has no gradient: they are fused after gradients are taken");
  const ir::Value a = g.input(0);
  const ir::Value b = g.input(1);
  const ir::Value bias = g.input(2);
  const MatmulProblem p = matmul_problem(a.type(), b.type(), attributes);
  const std::int64_t rows = p.a_free.rank();

  ir::Value dy = g.grad(0);
  if (attributes.boolean("save_pre") && g.grad(1)) dy = dy ? ir::apply1("add", {dy, g.grad(1)}) : g.grad(1);
  if (bias && g.needs(2)) {
    const bool widen = bias.dtype() == DType::f32 && dy.dtype() != DType::f32;
    std::vector<std::int64_t> dims;
    for (std::int64_t i = 0; i < rows; ++i) dims.push_back(i);
    ir::Value sum = dy;
    if (rows > 0) sum = ir::apply1("reduce", {dy}, {{"dims", dims}, {"out", widen ? "f32" : "same"}});
    if (sum.dtype() != bias.dtype()) sum = ir::apply1("cast", {sum}, {{"to", name_of(bias.dtype())}});
    g.set(2, sum);
  }
  if (dy.dtype() != a.dtype()) dy = ir::apply1("cast", {dy}, {{"to", name_of(a.dtype())}});

  const auto product = [](ir::Value left, bool trans_left, std::int64_t left_split, ir::Value right, bool trans_right,
                          std::int64_t right_split) {
    return ir::apply1(
        "matmul", {left, right},
        {{"trans_a", trans_left}, {"trans_b", trans_right}, {"a_split", left_split}, {"b_split", right_split}});
  };
  // dA = dY·Bᵀ and dB = Aᵀ·dY, each turned round when the operand is stored the other way.
  if (g.needs(0))
    g.set(0, p.trans_a ? product(b, p.trans_b, p.b_split, dy, true, rows)
                       : product(dy, false, rows, b, !p.trans_b, p.b_split));
  if (g.needs(1))
    g.set(1, p.trans_b ? product(dy, true, rows, a, p.trans_a, p.a_split)
                       : product(a, !p.trans_a, p.a_split, dy, false, rows));
}

ir::Factors factors(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  // What is added to or applied on a sum must not be added to or applied on its terms.
  ir::Factor::Kind contracted = ir::Factor::Kind::free;
  if (in[2].present) contracted = ir::Factor::Kind::partitioned;
  if (attributes.text("activation") != "none" || attributes.text("activation_grad") != "none" ||
      attributes.boolean("add"))
    contracted = ir::Factor::Kind::whole;
  ir::Factors f;
  const auto group = [&](const Shape& shape, const char* name, ir::Factor::Kind kind, bool exact = false) {
    std::vector<int> indices;
    for (int i = 0; i < shape.rank(); ++i) {
      indices.push_back(static_cast<int>(f.factors.size()));
      f.factors.push_back({.name = name + std::to_string(i), .kind = kind, .exact = exact});
    }
    return indices;
  };
  // A bias is added to padded rows too.
  const std::vector<int> m = group(p.a_free, "m", ir::Factor::Kind::free, in[2].present);
  const std::vector<int> n = group(p.b_free, "n", ir::Factor::Kind::free);
  const std::vector<int> k = group(p.contracted, "k", contracted);
  const auto join = [](std::vector<int> first, const std::vector<int>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  f.inputs = {p.trans_a ? join(k, m) : join(m, k), p.trans_b ? join(n, k) : join(k, n),
              in[2].present ? n : std::vector<int>{}, in[3].present ? join(m, n) : std::vector<int>{}};
  f.outputs.assign(out.size(), join(m, n));
  return f;
}

// Terms of the sum are summed before the bias is added.
void partition(ir::PartitionContext& p) {
  ir::ValueId y = p.reduced(p.add("matmul", {p.input(0), p.input(1), ir::kNone, ir::kNone}, p.attributes()).front(), 0);
  ir::ValueId bias = p.input(2);
  if (p.type(bias).dtype != p.type(y).dtype)
    bias = p.add("cast", {bias}, {{"to", std::string(name_of(p.type(y).dtype))}}).front();
  p.set(0, p.add("add", {y, bias}).front());
}

ir::Cost matmul_cost(std::span<const TensorType> in, std::span<const TensorType> out,
                     const ir::Attributes& attributes) {
  const MatmulProblem p = matmul_problem(in[0], in[1], attributes);
  ir::Cost c = one_pass(in, out, 0);
  c.flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return c;
}

}  // namespace

ir::OpDef matmul_def() {
  ir::OpDef def;
  def.name = "matmul";
  def.operands = {{.name = "a"}, {.name = "b"}, {.name = "bias", .optional = true}, {.name = "aux", .optional = true}};
  def.attributes = {{"trans_a", false},
                    {"trans_b", false},
                    {"a_split", std::int64_t{-1}},
                    {"b_split", std::int64_t{-1}},
                    {"activation", "none"},
                    {"activation_grad", "none"},
                    {"save_pre", false},
                    {"out", "same"},
                    {"tf32", false},
                    {"add", false}};
  def.infer = infer;
  def.gradient = matmul_gradient;
  def.factors = factors;
  def.partition = partition;
  def.cost = matmul_cost;
  def.with_precision(ir::Precision::low);
  def.traits.accumulates = true;
  def.traits.pads = true;
  def.traits.linear = ir::Linear::separately;
  def.traits.in_place = {{0, 3}};
  on_cpu(def, prepare_matmul_cpu, matmul_cpu_workspace);
  return checked(def);
}

}  // namespace trireme::ops
