#include "trireme/ops/conv/conv2d.h"

#include "trireme/ops/conv/problem.h"
#include "trireme/ops/conv/spatial.h"
#include "trireme/ops/define.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_conv2d_cpu(const ir::KernelSpec& spec);
std::size_t conv2d_cpu_workspace(const ir::KernelSpec& spec);
std::size_t conv2d_cpu_own(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_input_cpu(const ir::KernelSpec& spec);
std::size_t conv2d_grad_input_cpu_workspace(const ir::KernelSpec& spec);
std::size_t conv2d_grad_input_cpu_own(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_weight_cpu(const ir::KernelSpec& spec);
std::size_t conv2d_grad_weight_cpu_workspace(const ir::KernelSpec& spec);
std::size_t conv2d_grad_weight_cpu_own(const ir::KernelSpec& spec);

std::array<std::int64_t, 2> pair_of(const ir::Attributes& attributes, const char* name, std::int64_t least) {
  const std::vector<std::int64_t>& given = attributes.integers(name);
  if (given.size() != 2 || given[0] < least || given[1] < least)
    fail("'{}' must be two integers of at least {}, got {}", name, least, ir::to_text(*attributes.find(name)));
  return {given[0], given[1]};
}

void read_padding(Window& window, const ir::Attributes& attributes) {
  const std::vector<std::int64_t>& given = attributes.integers("padding");
  if (given.size() != 4) {
    window.padding = window.padding_after = pair_of(attributes, "padding", 0);
    return;
  }
  for (const std::int64_t rows : given)
    if (rows < 0) fail("'padding' must have no negative number, got {}", ir::to_text(*attributes.find("padding")));
  window.padding = {given[0], given[1]};
  window.padding_after = {given[2], given[3]};
}

namespace {

void expect_rank4(const TensorType& type, const char* operand, const char* layout) {
  if (type.shape.rank() != 4) fail("'{}' must be {}, got {}", operand, layout, type.str());
}

// What all three have in their attributes.
ConvProblem common(const ir::Attributes& attributes) {
  ConvProblem p;
  p.window.stride = pair_of(attributes, "stride", 1);
  read_padding(p.window, attributes);
  p.window.dilation = pair_of(attributes, "dilation", 1);
  p.groups = attributes.integer("groups");
  if (p.groups < 1) fail("'groups' must be at least 1, got {}", p.groups);
  return p;
}

void finish(ConvProblem& p) {
  if (p.c % p.groups != 0 || p.k % p.groups != 0)
    fail("'groups' must divide the {} input and {} output channels, got {}", p.c, p.k, p.groups);
  p.p = p.window.positions(0, p.h);
  p.q = p.window.positions(1, p.w);
  if (p.p < 1 || p.q < 1)
    fail("the kernel {}x{} does not fit into the padded image {}x{}", p.window.kernel[0], p.window.kernel[1], p.h, p.w);
}

}  // namespace

ConvProblem conv_problem(const TensorType& x, const TensorType& w, const ir::Attributes& attributes) {
  expect_rank4(x, "x", "[n,h,w,c]");
  expect_rank4(w, "w", "[k,r,s,c/groups]");
  ConvProblem p = common(attributes);
  p.n = x.shape[0];
  p.h = x.shape[1];
  p.w = x.shape[2];
  p.c = x.shape[3];
  p.k = w.shape[0];
  p.window.kernel = {w.shape[1], w.shape[2]};
  finish(p);
  expect_shape(w, p.weights(), "w");
  return p;
}

ConvProblem conv_input_gradient_problem(const TensorType& dy, const TensorType& w, const ir::Attributes& attributes) {
  expect_rank4(dy, "dy", "[n,p,q,k]");
  expect_rank4(w, "w", "[k,r,s,c/groups]");
  ConvProblem p = common(attributes);
  p.n = dy.shape[0];
  p.h = attributes.integer("height");
  p.w = attributes.integer("width");
  p.c = w.shape[3] * p.groups;
  p.k = w.shape[0];
  p.window.kernel = {w.shape[1], w.shape[2]};
  finish(p);
  expect_shape(dy, p.y(), "dy");
  return p;
}

ConvProblem conv_weight_gradient_problem(const TensorType& x, const TensorType& dy, const ir::Attributes& attributes) {
  expect_rank4(x, "x", "[n,h,w,c]");
  expect_rank4(dy, "dy", "[n,p,q,k]");
  ConvProblem p = common(attributes);
  p.n = x.shape[0];
  p.h = x.shape[1];
  p.w = x.shape[2];
  p.c = x.shape[3];
  p.k = dy.shape[3];
  p.window.kernel = pair_of(attributes, "kernel", 1);
  finish(p);
  expect_shape(dy, p.y(), "dy");
  return p;
}

namespace {

const std::vector<ir::AttributeSpec>& window_attributes() {
  static const std::vector<ir::AttributeSpec> specs = {{"stride", std::vector<std::int64_t>{1, 1}},
                                                       {"padding", std::vector<std::int64_t>{0, 0}},
                                                       {"dilation", std::vector<std::int64_t>{1, 1}},
                                                       {"groups", std::int64_t{1}},
                                                       {"tf32", false}};
  return specs;
}

std::vector<ir::AttributeSpec> with(std::vector<ir::AttributeSpec> more) {
  more.insert(more.begin(), window_attributes().begin(), window_attributes().end());
  return more;
}

ir::Cost cost(const ConvProblem& p, std::span<const TensorType> in, std::span<const TensorType> out) {
  ir::Cost c = one_pass(in, out, 0);
  c.flops = 2.0 * static_cast<double>(p.y().elements()) * static_cast<double>(p.weights().elements(1, 4));
  return c;
}

void gradient(ir::GradientContext& g) {
  ir::Attributes shared;
  for (const ir::AttributeSpec& spec : window_attributes()) shared.set(spec.name, *g.attributes().find(spec.name));
  const ir::Value x = g.input(0);
  const ir::Value w = g.input(1);
  const ir::Value bias = g.input(2);
  const ir::Value dy = g.grad();
  if (g.needs(0)) {
    ir::Attributes attributes = shared;
    attributes.set("height", x.shape()[1]);
    attributes.set("width", x.shape()[2]);
    g.set(0, ir::apply1("conv2d_grad_input", {dy, w}, attributes));
  }
  if (g.needs(1)) {
    ir::Attributes attributes = shared;
    attributes.set("kernel", std::vector<std::int64_t>{w.shape()[1], w.shape()[2]});
    g.set(1, ir::apply1("conv2d_grad_weight", {x, dy}, attributes));
  }
  if (bias && g.needs(2)) {
    const bool widen = bias.dtype() == DType::f32 && dy.dtype() != DType::f32;
    ir::Value sum =
        ir::apply1("reduce", {dy}, {{"dims", std::vector<std::int64_t>{0, 1, 2}}, {"out", widen ? "f32" : "same"}});
    if (sum.dtype() != bias.dtype()) sum = ir::apply1("cast", {sum}, {{"to", name_of(bias.dtype())}});
    g.set(2, sum);
  }
}

// Channels of several groups do not go together one to one, so they stay whole.
bool grouped(const ir::Attributes& attributes) { return attributes.integer("groups") > 1; }

// Heights and widths stay whole where windows may lie outside the image.
ir::Factors image_factors(std::string_view text, const Window& window) {
  ir::Factors factors = ir::parse_factors(text);
  if (!may_shard(window))
    for (ir::Factor& factor : factors.factors)
      if (factor.kind == ir::Factor::Kind::halo) factor.kind = ir::Factor::Kind::whole;
  return factors;
}

}  // namespace

ir::OpDef conv2d_def() {
  ir::OpDef def;
  def.name = "conv2d";
  def.operands = {{.name = "x"}, {.name = "w"}, {.name = "bias", .optional = true}};
  def.attributes = window_attributes();
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(in[0], "x");
    expect_dtype(in[1], in[0].dtype, "w");
    const ConvProblem p = conv_problem(in[0], in[1], attributes);
    if (in[2].present) {
      expect_compute(in[2], "bias");
      expect_shape(in[2], {p.k}, "bias");
    }
    return {{in[0].dtype, p.y()}};
  };
  def.gradient = gradient;
  def.factors = [](std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes& attributes) {
    const Window window = conv_problem(in[0], in[1], attributes).window;
    // A bias must not be added to parts of a sum over c.
    if (in[2].present)
      return image_factors(grouped(attributes) ? "n= h~ w~ c!, k! r! s! g!, k! -> n h~ w~ k!"
                                               : "n= h~ w~ c!, k r! s! c!, k -> n h~ w~ k",
                           window);
    return image_factors(
        grouped(attributes) ? "n= h~ w~ c!, k! r! s! g!, - -> n h~ w~ k!" : "n= h~ w~ c, k r! s! c, - -> n h~ w~ k",
        window);
  };
  def.partition = partition_conv2d;
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    return cost(conv_problem(in[0], in[1], attributes), in, out);
  };
  def.with_precision(ir::Precision::low);
  def.traits.pads = true;
  on_cpu(def, prepare_conv2d_cpu, conv2d_cpu_workspace, conv2d_cpu_own);
  return checked(def);
}

ir::OpDef conv2d_grad_input_def() {
  ir::OpDef def;
  def.name = "conv2d_grad_input";
  def.operands = {{.name = "dy"}, {.name = "w"}};
  def.attributes = with({{"height", std::int64_t{0}}, {"width", std::int64_t{0}}});
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(in[0], "dy");
    expect_dtype(in[1], in[0].dtype, "w");
    return {{in[0].dtype, conv_input_gradient_problem(in[0], in[1], attributes).x()}};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes& attributes) {
    return image_factors(
        grouped(attributes) ? "n= h~ w~ k!, k! r! s! g! -> n h~ w~ c!" : "n= h~ w~ k, k r! s! c -> n h~ w~ c",
        conv_input_gradient_problem(in[0], in[1], attributes).window);
  };
  def.partition = partition_conv2d_grad_input;
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    return cost(conv_input_gradient_problem(in[0], in[1], attributes), in, out);
  };
  def.with_precision(ir::Precision::low);
  def.traits.pads = true;
  on_cpu(def, prepare_conv2d_grad_input_cpu, conv2d_grad_input_cpu_workspace, conv2d_grad_input_cpu_own);
  return checked(def);
}

ir::OpDef conv2d_grad_weight_def() {
  ir::OpDef def;
  def.name = "conv2d_grad_weight";
  def.operands = {{.name = "x"}, {.name = "dy"}};
  def.attributes = with({{"kernel", std::vector<std::int64_t>{1, 1}}, {"out", "same"}});
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(in[0], "x");
    expect_dtype(in[1], in[0].dtype, "dy");
    const ConvProblem p = conv_weight_gradient_problem(in[0], in[1], attributes);
    return {{out_dtype(attributes.text("out"), in[0].dtype), p.weights()}};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes& attributes) {
    return image_factors(
        grouped(attributes) ? "n= h~ w~ c!, n h~ w~ k! -> k! r! s! g!" : "n= h~ w~ c, n h~ w~ k -> k r! s! c",
        conv_weight_gradient_problem(in[0], in[1], attributes).window);
  };
  def.partition = partition_conv2d_grad_weight;
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    return cost(conv_weight_gradient_problem(in[0], in[1], attributes), in, out);
  };
  def.with_precision(ir::Precision::low);
  def.traits.accumulates = true;
  def.traits.pads = true;
  on_cpu(def, prepare_conv2d_grad_weight_cpu, conv2d_grad_weight_cpu_workspace, conv2d_grad_weight_cpu_own);
  return checked(def);
}

ir::Value conv2d(ir::Value x, ir::Value weight, ir::Value bias, const ConvOptions& options) {
  const auto list = [](const std::array<std::int64_t, 2>& pair) {
    return std::vector<std::int64_t>(pair.begin(), pair.end());
  };
  return ir::apply1("conv2d", {x, weight, bias},
                    {{"stride", list(options.stride)},
                     {"padding", list(options.padding)},
                     {"dilation", list(options.dilation)},
                     {"groups", options.groups}});
}

}  // namespace trireme::ops
