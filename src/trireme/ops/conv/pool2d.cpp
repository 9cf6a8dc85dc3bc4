#include "trireme/ops/conv/pool2d.h"

#include "trireme/ops/conv/problem.h"
#include "trireme/ops/conv/spatial.h"
#include "trireme/ops/define.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_max_pool2d_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_max_pool2d_grad_cpu(const ir::KernelSpec& spec);
std::size_t max_pool2d_grad_cpu_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_grad_cpu(const ir::KernelSpec& spec);

Window pool_window(const ir::Attributes& attributes) {
  Window w;
  w.kernel = pair_of(attributes, "kernel", 1);
  w.stride = pair_of(attributes, "stride", 1);
  read_padding(w, attributes);
  for (std::size_t i = 0; i < 2; ++i)
    if (const std::int64_t most = std::max(w.padding[i], w.padding_after[i]); 2 * most > w.kernel[i])
      fail("'padding' must be at most half of 'kernel', got {} for {}", most, w.kernel[i]);
  return w;
}

namespace {

void expect_image(const TensorType& type, const char* operand) {
  expect_compute(type, operand);
  if (type.shape.rank() != 4) fail("'{}' must be [n,h,w,c], got {}", operand, type.str());
}

Shape pooled(const Shape& x, const Window& window) {
  const std::int64_t p = window.positions(0, x[1]);
  const std::int64_t q = window.positions(1, x[2]);
  if (p < 1 || q < 1)
    fail("the kernel {}x{} does not fit into the padded image {}x{}", window.kernel[0], window.kernel[1], x[1], x[2]);
  return {x[0], p, q, x[3]};
}

Shape input_of(const TensorType& dy, const ir::Attributes& attributes) {
  const std::int64_t height = attributes.integer("height");
  const std::int64_t width = attributes.integer("width");
  if (height < 1 || width < 1) fail("'height' and 'width' must be the input's, got {} and {}", height, width);
  return {dy.shape[0], height, width, dy.shape[3]};
}

std::vector<ir::AttributeSpec> window_attributes(std::vector<ir::AttributeSpec> more = {}) {
  const auto pair = [](std::int64_t value) { return std::vector<std::int64_t>{value, value}; };
  more.insert(more.begin(), {{"kernel", pair(2)}, {"stride", pair(2)}, {"padding", pair(0)}});
  return more;
}

// Where a slice of an image is in the whole one, whose pixels an index counts.
std::vector<ir::AttributeSpec> in_whole_image() {
  return {{"origin", std::vector<std::int64_t>{0, 0}}, {"whole_width", std::int64_t{0}}};
}

// What the four have in common.
ir::OpDef pool_def(std::string name, std::vector<ir::OperandSpec> operands, std::vector<ir::AttributeSpec> attributes,
                   std::string_view factors) {
  ir::OpDef def;
  def.name = std::move(name);
  def.operands = std::move(operands);
  def.attributes = std::move(attributes);
  def.factors = [factors](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes& given) {
    ir::Factors all = ir::parse_factors(factors);
    // Of a gradient that does not know its windows, images stay whole.
    const bool known = given.integers("kernel") != std::vector<std::int64_t>{0, 0};
    for (ir::Factor& factor : all.factors)
      if (factor.kind == ir::Factor::Kind::halo && !(known && may_shard(pool_window(given))))
        factor.kind = ir::Factor::Kind::whole;
    return all;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.pads = true;
  return def;
}

double window_size(const ir::Attributes& attributes) {
  const auto kernel = pair_of(attributes, "kernel", 1);
  return static_cast<double>(kernel[0] * kernel[1]);
}

ir::Attributes options_of(const PoolOptions& options) {
  const auto list = [](const std::array<std::int64_t, 2>& pair) {
    return std::vector<std::int64_t>(pair.begin(), pair.end());
  };
  return {{"kernel", list(options.kernel)}, {"stride", list(options.stride)}, {"padding", list(options.padding)}};
}

}  // namespace

ir::OpDef max_pool2d_def() {
  ir::OpDef def = pool_def("max_pool2d", {{.name = "x"}}, window_attributes(in_whole_image()),
                           "n= h~ w~ c -> n h~ w~ c, n h~ w~ c");
  def.partition = partition_pool2d;
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_image(in[0], "x");
    const Shape y = pooled(in[0].shape, pool_window(attributes));
    return {{in[0].dtype, y}, {DType::i32, y}};
  };
  def.gradient = [](ir::GradientContext& g) {
    const Shape x = g.input(0).shape();
    ir::Attributes attributes = g.attributes();
    attributes.set("height", x[1]);
    attributes.set("width", x[2]);
    g.set(0, ir::apply1("max_pool2d_grad", {g.grad(), g.output(1)}, attributes));
  };
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    return one_pass(in, out, window_size(attributes));
  };
  on_cpu(def, prepare_max_pool2d_cpu);
  return checked(def);
}

ir::OpDef max_pool2d_grad_def() {
  ir::OpDef def = pool_def("max_pool2d_grad", {{.name = "dy"}, {.name = "index"}},
                           {{"kernel", std::vector<std::int64_t>{0, 0}},
                            {"stride", std::vector<std::int64_t>{1, 1}},
                            {"padding", std::vector<std::int64_t>{0, 0}},
                            {"height", std::int64_t{0}},
                            {"width", std::int64_t{0}},
                            in_whole_image()[0],
                            in_whole_image()[1]},
                           "n= h~ w~ c, n h~ w~ c -> n h~ w~ c");
  def.partition = partition_pool2d_grad;
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_image(in[0], "dy");
    expect_type(in[1], {DType::i32, in[0].shape}, "index");
    return {{in[0].dtype, input_of(in[0], attributes)}};
  };
  def.no_gradient = "second derivatives are not taken";
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes&) {
    return one_pass(in, out, 1);
  };
  on_cpu(def, prepare_max_pool2d_grad_cpu, max_pool2d_grad_cpu_workspace);
  return checked(def);
}

ir::OpDef avg_pool2d_def() {
  ir::OpDef def = pool_def("avg_pool2d", {{.name = "x"}}, window_attributes({{"count_include_pad", true}}),
                           "n= h~ w~ c -> n h~ w~ c");
  def.partition = partition_pool2d;
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_image(in[0], "x");
    return {{in[0].dtype, pooled(in[0].shape, pool_window(attributes))}};
  };
  def.gradient = [](ir::GradientContext& g) {
    const Shape x = g.input(0).shape();
    ir::Attributes attributes = g.attributes();
    attributes.set("height", x[1]);
    attributes.set("width", x[2]);
    g.set(0, ir::apply1("avg_pool2d_grad", {g.grad()}, attributes));
  };
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    return one_pass(in, out, window_size(attributes));
  };
  on_cpu(def, prepare_avg_pool2d_cpu);
  return checked(def);
}

ir::OpDef avg_pool2d_grad_def() {
  ir::OpDef def = pool_def(
      "avg_pool2d_grad", {{.name = "dy"}},
      window_attributes({{"count_include_pad", true}, {"height", std::int64_t{0}}, {"width", std::int64_t{0}}}),
      "n= h~ w~ c -> n h~ w~ c");
  def.partition = partition_pool2d_grad;
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_image(in[0], "dy");
    const Shape x = input_of(in[0], attributes);
    expect_shape(in[0], pooled(x, pool_window(attributes)), "dy");
    return {{in[0].dtype, x}};
  };
  def.no_gradient = "second derivatives are not taken";
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes& attributes) {
    ir::Cost c = one_pass(in, out, 0);
    c.flops = window_size(attributes) * static_cast<double>(in[0].elements());
    return c;
  };
  on_cpu(def, prepare_avg_pool2d_grad_cpu);
  return checked(def);
}

ir::OpDef global_avg_pool_def() {
  ir::OpDef def;
  def.name = "global_avg_pool";
  def.operands = {{.name = "x"}};
  def.compose = [](std::span<const ir::Value> inputs, const ir::Attributes&) -> std::vector<ir::Value> {
    expect_image(inputs[0].type(), "x");
    return {ir::apply1("reduce", {inputs[0]}, {{"kind", "mean"}, {"dims", std::vector<std::int64_t>{1, 2}}})};
  };
  return def;
}

ir::Value max_pool2d(ir::Value x, const PoolOptions& options) {
  return ir::apply1("max_pool2d", {x}, options_of(options));
}

ir::Value avg_pool2d(ir::Value x, const PoolOptions& options, bool count_include_pad) {
  ir::Attributes attributes = options_of(options);
  attributes.set("count_include_pad", count_include_pad);
  return ir::apply1("avg_pool2d", {x}, attributes);
}

ir::Value global_avg_pool(ir::Value x) { return ir::apply1("global_avg_pool", {x}); }

}  // namespace trireme::ops
