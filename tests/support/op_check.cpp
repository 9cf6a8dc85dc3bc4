#include "support/op_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "support/guarded.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/ir/builder.h"
#include "trireme/ir/verify.h"
#include "trireme/ops/all.h"

namespace trireme::testing {
namespace {

const ir::Registry& registry() {
  static const ir::Registry instance = ops::builtin();
  return instance;
}

std::string describe(const OpCase& c) {
  std::string text = c.op + "(";
  for (const TensorType& t : c.inputs) text += t.str() + " ";
  text += ")";
  for (const auto& [name, value] : c.attributes) text += " " + name + "=" + ir::to_text(value);
  return text;
}

double random_unit(std::uint64_t stream, std::uint64_t i) {
  return to_unit(RandomStream{7, stream, 0}.words(0, i)[0]) * 2.0 - 1.0;
}

std::vector<Tensor> make_inputs(const OpCase& c) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    Tensor t{c.inputs[i], {}};
    if (t.type.present) {
      t.data.resize(static_cast<std::size_t>(t.type.elements()));
      for (std::size_t e = 0; e < t.data.size(); ++e) {
        const double value = c.fill ? c.fill(i, e) : random_unit(i, e);
        t.data[e] = round_to(value, t.type.dtype);
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

// A graph that applies the op to inputs "in0", "in1", … with outputs "out0", ….
struct SingleOp {
  explicit SingleOp(const OpCase& c, const std::vector<Tensor>& inputs) {
    module.registry = &registry();
    ir::Builder b(module, "micro");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values.push_back(inputs[i].type.present ? b.input("in" + std::to_string(i), inputs[i].type) : ir::Value());
    if (std::none_of(values.begin(), values.end(), [](const ir::Value& v) { return static_cast<bool>(v); })) {
      for (const ir::ValueId id : b.graph().add(registry().at(c.op), {}, c.attributes, c.op))
        outputs.emplace_back(b.here({}).site(), "", id);
    } else {
      outputs = ir::apply(c.op, values, c.attributes);
    }
    for (std::size_t o = 0; o < outputs.size(); ++o) b.output("out" + std::to_string(o), outputs[o]);
  }
  ir::Module module;
  std::vector<ir::Value> values;
  std::vector<ir::Value> outputs;
};

std::map<std::string, Tensor> bindings(const std::vector<Tensor>& inputs) {
  std::map<std::string, Tensor> named;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].type.present) named["in" + std::to_string(i)] = inputs[i];
  return named;
}

std::vector<Tensor> forward(const OpCase& c, const std::vector<Tensor>& inputs, const GuardedOptions& options = {}) {
  const SingleOp single(c, inputs);
  ir::verify(single.module);
  return run_guarded(single.module, bindings(inputs), options);
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t o = 0; o < a.size(); ++o)
    EXPECT_EQ(std::memcmp(a[o].data.data(), b[o].data.data(), a[o].data.size() * sizeof(double)), 0)
        << "output " << o << ": " << what;
}

void check_reference(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const std::vector<Tensor> expected = c.reference(inputs);
  ASSERT_LE(expected.size(), outputs.size());
  for (std::size_t o = 0; o < expected.size(); ++o) {
    ASSERT_EQ(expected[o].data.size(), outputs[o].data.size()) << "output " << o;
    const double error = relative_error(outputs[o].data, expected[o].data);
    EXPECT_LE(error, c.tolerance) << "output " << o << " of " << outputs[o].type.str();
  }
}

void check_in_place(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  for (const auto& pair : registry().at(c.op).traits.in_place) {
    const auto out = static_cast<std::size_t>(pair.first);
    const auto in = static_cast<std::size_t>(pair.second);
    if (out >= outputs.size() || in >= inputs.size() || !inputs[in].type.present ||
        inputs[in].type.bytes() != outputs[out].type.bytes())
      continue;
    GuardedOptions options;
    options.in_place = pair;
    expect_same_bits(forward(c, inputs, options), outputs, fmt::format("differs when in place of input {}", in));
  }
}

// Σ over outputs of <weights, output>, for finite differences.
double weighted(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights) {
  const std::vector<Tensor> outputs = c.reference(inputs);
  double sum = 0;
  for (const std::size_t o : c.differentiate_outputs)
    for (std::size_t e = 0; e < outputs[o].data.size(); ++e) sum += outputs[o].data[e] * weights[o].data[e];
  return sum;
}

void check_gradients(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  if (c.differentiate.empty()) return;
  SingleOp single(c, inputs);
  ir::Graph& graph = single.module.graph("micro");
  std::map<std::string, Tensor> bound = bindings(inputs);
  std::vector<Tensor> weights = outputs;
  std::vector<ir::Value> grads(outputs.size());
  const ir::Builder b(single.module, "micro");
  for (const std::size_t o : c.differentiate_outputs) {
    for (std::size_t e = 0; e < weights[o].data.size(); ++e)
      weights[o].data[e] = round_to(random_unit(100 + o, e), weights[o].type.dtype);
    const std::string name = "upstream" + std::to_string(o);
    grads[o] = b.input(name, weights[o].type);
    bound[name] = weights[o];
  }
  const ir::OpDef& op = registry().at(c.op);
  ASSERT_TRUE(op.gradient) << c.op << " has no gradient: " << op.no_gradient;
  std::vector<bool> needs(graph.nodes.front().inputs.size(), false);
  for (const std::size_t i : c.differentiate) needs[i] = true;
  ir::GradientContext context(single.module, "micro", 0, grads, needs);
  op.gradient(context);
  graph.outputs.clear();
  for (const std::size_t i : c.differentiate) {
    ASSERT_TRUE(context.result()[i]) << "no gradient for input " << i;
    ASSERT_EQ(context.result()[i].shape(), inputs[i].type.shape) << "gradient of input " << i;
    graph.outputs.push_back({"d" + std::to_string(i), context.result()[i].id()});
  }
  ir::verify(single.module);
  if (!has_kernels(single.module)) return;
  const std::vector<Tensor> analytic = run_guarded(single.module, bound, {});
  GuardedOptions three;
  three.threads = 3;
  expect_same_bits(run_guarded(single.module, bound, three), analytic, "gradient differs with three threads");
  constexpr std::size_t kSamples = 80;
  for (std::size_t k = 0; k < c.differentiate.size(); ++k) {
    const std::size_t i = c.differentiate[k];
    std::vector<Tensor> moved = inputs;
    std::vector<double> numeric;
    std::vector<double> exact;
    const std::size_t elements = inputs[i].data.size();
    const std::size_t step = std::max<std::size_t>(1, elements / kSamples);
    for (std::size_t e = 0; e < elements; e += step) {
      constexpr double h = 1e-4;
      moved[i].data[e] = inputs[i].data[e] + h;
      const double above = weighted(c, moved, weights);
      moved[i].data[e] = inputs[i].data[e] - h;
      const double below = weighted(c, moved, weights);
      moved[i].data[e] = inputs[i].data[e];
      numeric.push_back((above - below) / (2 * h));
      exact.push_back(analytic[k].data[e]);
    }
    EXPECT_LE(relative_error(exact, numeric), c.gradient_tolerance)
        << "gradient of input " << i << " " << inputs[i].type.str();
  }
}

// The part [begin, end) of `extent` of every dimension of `t` that carries the factor. One that is longer, of which
// several elements go with one of the others (heads that share keys), is cut in proportion.
Tensor cut(const Tensor& t, const std::vector<int>& dims, int factor, std::int64_t begin, std::int64_t end,
           std::int64_t extent) {
  if (!t.type.present) return t;
  Tensor piece = t;
  const Shape whole = t.type.shape;
  for (int d = 0; d < whole.rank(); ++d)
    if (dims[static_cast<std::size_t>(d)] == factor) piece.type.shape[d] = (end - begin) * (whole[d] / extent);
  piece.data.assign(static_cast<std::size_t>(piece.type.elements()), 0);
  for (std::size_t e = 0; e < piece.data.size(); ++e) {
    auto rest = static_cast<std::int64_t>(e);
    std::int64_t source = 0;
    std::int64_t stride = 1;
    for (int d = whole.rank(); d-- > 0;) {
      const std::int64_t at =
          rest % piece.type.shape[d] + (dims[static_cast<std::size_t>(d)] == factor ? begin * (whole[d] / extent) : 0);
      rest /= piece.type.shape[d];
      source += at * stride;
      stride *= whole[d];
    }
    piece.data[e] = t.data[static_cast<std::size_t>(source)];
  }
  return piece;
}

void check_factor(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                  const ir::Factors& factors, int f) {
  const std::string name = factors.factors[static_cast<std::size_t>(f)].name;
  std::int64_t extent = 0;
  bool in_inputs = false;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t d = 0; d < factors.inputs[i].size(); ++d)
      if (factors.inputs[i][d] == f && inputs[i].type.present) {
        const std::int64_t own = inputs[i].type.shape[static_cast<int>(d)];
        EXPECT_TRUE(extent == 0 || own % extent == 0 || extent % own == 0)
            << "factor " << name << " has extents " << extent << " and " << own;
        extent = extent == 0 ? own : std::min(extent, own);
        in_inputs = true;
      }
  if (!in_inputs || extent < 2) return;
  std::vector<std::vector<Tensor>> pieces;
  const std::int64_t middle = extent / 2;
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, middle}, {middle, extent}}) {
    std::vector<Tensor> part;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      part.push_back(cut(inputs[i], factors.inputs[i], f, begin, end, extent));
    pieces.push_back(forward(c, part));
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const std::vector<int>& dims = factors.outputs[o];
    const bool appears = std::find(dims.begin(), dims.end(), f) != dims.end();
    if (!is_float(outputs[o].type.dtype)) continue;
    if (appears) {
      for (const auto& [piece, begin, end] :
           {std::tuple<std::size_t, std::int64_t, std::int64_t>{0, 0, middle}, {1, middle, extent}}) {
        const Tensor expected = cut(outputs[o], dims, f, begin, end, extent);
        ASSERT_EQ(pieces[piece][o].type, expected.type) << "factor " << name << ", output " << o;
        EXPECT_LE(relative_error(pieces[piece][o].data, expected.data), c.tolerance)
            << "factor " << name << " piece " << piece << ", output " << o;
      }
    } else {
      std::vector<double> combined(outputs[o].data.size());
      ASSERT_EQ(pieces[0][o].data.size(), combined.size()) << "factor " << name << ", output " << o;
      for (std::size_t e = 0; e < combined.size(); ++e)
        combined[e] = factors.max_reduced ? std::max(pieces[0][o].data[e], pieces[1][o].data[e])
                                          : pieces[0][o].data[e] + pieces[1][o].data[e];
      EXPECT_LE(relative_error(combined, outputs[o].data), 2 * c.tolerance)
          << "partial results over factor " << name << ", output " << o;
    }
  }
}

// `t` with zeros behind the elements of the dimensions that carry the factor, half as many again and one.
Tensor padded(const Tensor& t, const std::vector<int>& dims, int factor) {
  Tensor longer = t;
  for (int d = 0; d < t.type.shape.rank(); ++d)
    if (dims[static_cast<std::size_t>(d)] == factor) longer.type.shape[d] += longer.type.shape[d] / 2 + 1;
  longer.data.assign(static_cast<std::size_t>(longer.type.elements()), 0);
  for (std::size_t e = 0; e < t.data.size(); ++e) {
    auto rest = static_cast<std::int64_t>(e);
    std::int64_t to = 0;
    std::int64_t stride = 1;
    for (int d = t.type.shape.rank(); d-- > 0;) {
      to += rest % t.type.shape[d] * stride;
      rest /= t.type.shape[d];
      stride *= longer.type.shape[d];
    }
    longer.data[static_cast<std::size_t>(to)] = t.data[e];
  }
  return longer;
}

void check_padding(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                   const ir::Factors& factors, int f) {
  const auto carries = [&](const std::vector<int>& dims) {
    return std::find(dims.begin(), dims.end(), f) != dims.end();
  };
  const std::string& name = factors.factors[static_cast<std::size_t>(f)].name;
  EXPECT_TRUE(std::any_of(factors.inputs.begin(), factors.inputs.end(), carries))
      << "factor " << name << " of outputs alone cannot keep zeros in padding: it should be exact";
  std::vector<Tensor> longer;
  ir::Types in;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    longer.push_back(inputs[i].type.present ? padded(inputs[i], factors.inputs[i], f) : inputs[i]);
    in.push_back(longer.back().type);
  }
  std::vector<Tensor> expected;
  ir::Types out;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    expected.push_back(padded(outputs[o], factors.outputs[o], f));
    out.push_back(expected.back().type);
  }
  OpCase local = c;
  if (const ir::OpDef& op = registry().at(c.op); op.localize) {
    ir::Attributes whole;
    for (const ir::AttributeSpec& spec : op.attributes) whole.set(spec.name, spec.fallback);
    for (const auto& [key, value] : c.attributes) whole.set(key, value);
    local.attributes = op.localize(in, out, whole);
  }
  const std::vector<Tensor> made = forward(local, longer);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (std::find(c.saved_outputs.begin(), c.saved_outputs.end(), o) != c.saved_outputs.end()) continue;
    ASSERT_EQ(made[o].type, expected[o].type) << "padded factor " << name << ", output " << o;
    if (is_float(outputs[o].type.dtype)) {
      EXPECT_LE(relative_error(made[o].data, expected[o].data), c.tolerance)
          << "padded factor " << name << ", output " << o;
    }
    if (!carries(factors.outputs[o]) || !is_float(outputs[o].type.dtype)) continue;
    // Exactly zeros, which a small norm of the difference would not say.
    const std::vector<double> ones(outputs[o].data.size(), 1);
    const Tensor before = padded({outputs[o].type, ones}, factors.outputs[o], f);
    for (std::size_t e = 0; e < before.data.size(); ++e) {
      if (before.data[e] == 0) {
        EXPECT_EQ(made[o].data[e], 0) << "padded factor " << name << ", output " << o;
      }
    }
  }
}

void check_factors(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const SingleOp single(c, inputs);
  const ir::Graph& graph = single.module.graph("micro");
  const ir::Node& node = graph.nodes.front();
  const ir::Types in = graph.input_types(node);
  const ir::Types out = graph.output_types(node);
  ir::Factors factors = node.op->factors(in, out, node.attributes);
  factors.inputs.resize(in.size());
  ASSERT_EQ(factors.outputs.size(), out.size()) << factors.str();
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i].present) {
      ASSERT_EQ(static_cast<int>(factors.inputs[i].size()), in[i].shape.rank())
          << "factors of input " << i << ": " << factors.str();
    }
  for (std::size_t o = 0; o < out.size(); ++o)
    ASSERT_EQ(static_cast<int>(factors.outputs[o].size()), out[o].shape.rank())
        << "factors of output " << o << ": " << factors.str();
  std::vector<Tensor> all = inputs;
  all.resize(in.size(), Tensor{TensorType::none(), {}});
  for (std::size_t f = 0; f < factors.factors.size(); ++f) {
    const ir::Factor& factor = factors.factors[f];
    if (factor.kind != ir::Factor::Kind::free) continue;
    check_factor(c, all, outputs, factors, static_cast<int>(f));
    if (node.op->traits.pads && !factor.exact) check_padding(c, all, outputs, factors, static_cast<int>(f));
  }
}

}  // namespace

void check_op(const OpCase& c) {
  SCOPED_TRACE(describe(c));
  try {
    const std::vector<Tensor> inputs = make_inputs(c);
    if (!has_kernels(SingleOp(c, inputs).module)) return;
    const std::vector<Tensor> outputs = forward(c, inputs);
    check_reference(c, inputs, outputs);
    GuardedOptions three;
    three.threads = 3;
    expect_same_bits(forward(c, inputs, three), outputs, "differs with three threads");
    check_in_place(c, inputs, outputs);
    check_gradients(c, inputs, outputs);
    if (c.check_factors) check_factors(c, inputs, outputs);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return a[i];
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (difference == 0) return 0;
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

double round_to(double value, DType dtype) {
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(static_cast<T>(value));
    else
      return static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  });
}

}  // namespace trireme::testing
