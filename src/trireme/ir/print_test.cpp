#include "trireme/ir/print.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/builder.h"
#include "trireme/ir/verify.h"

namespace trireme::ir {
namespace {

const Registry& registry() {
  static const Registry instance = testing::probe_registry();
  return instance;
}

// Everything the text form can say, once.
constexpr const char* kEverything = R"text(module {
  mesh "pp=2,dp=2,tp=4"
  state @w : f32[8,16] category=weights init=normal(0.02) trained decayed
  state @w/bf16 : bf16[8,16] category=weights init=derived unsaved derived_from=@w
  state @b : f32[8] category=weights init=uniform(0.125) trained
  state @scale : f32[] category=statistics init=constant(1.0) tier=2
  state @w/m : f32[8,16] category=optimizer init=zeros sharding="[dp,tp]"
  state @w/grad : f32[8,16] category=gradients init=zeros unsaved step_local sharding="[_,_] partial(sum:dp)"
  state @loss : f32[] category=scalars init=zeros unsaved step_local
  graph micro {
    input %x : f32[4,16] sharding:0="[dp,_]"
    input %index : i32[4]
    %a = matmul(%x, @w, @b) {trans_b=true} : f32[4,8]
    %b, %b:1 = pair(%a) : f32[4,8], f32[] stage=3 sharding:0="[dp,tp]" sharding:1="[] partial(max:dp,softmax:tp)"
    %p = probe(%b, _, %x) {count=-9223372036854775808, dims=[3,-1,0], flag=true, label="a \"b\" \\ c", ratio=0.1} : f32[4,8] phase=input_gradient barrier
    %q = probe(%p) {label="two\nlines", ratio=-0.0} : f32[4,8] phase=weight_gradient stage=1 barrier
    %t = together(%a, %b, %q) : f32[4,8] phase=update
    %zero = fill() {shape=[0,3], value=1e-300} : f32[0,3]
    write set @scale = @scale
    write add @loss = %b:1
    output rows = %t
    output stored = @w/bf16
  }
  graph empty {
  }
}
)text";

TEST(Print, EverythingRoundTrips) {
  const Module module = parse(kEverything, registry());
  verify(module);
  EXPECT_EQ(to_text(module), kEverything);
  EXPECT_TRUE(equal(module, parse(to_text(module), registry())));
  const Graph& g = module.graph("micro");
  EXPECT_EQ(g.nodes[1].stage, 3);
  EXPECT_TRUE(g.nodes[2].barrier);
  EXPECT_EQ(g.nodes[2].inputs[1], kNone);
  EXPECT_EQ(g.nodes[2].phase, Phase::input_gradient);
  EXPECT_EQ(g.nodes[2].attributes.text("label"), "a \"b\" \\ c");
  EXPECT_EQ(g.nodes[2].attributes.integer("count"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(g.nodes[3].attributes.text("label"), "two\nlines");
  EXPECT_TRUE(std::signbit(g.nodes[3].attributes.real("ratio")));
  EXPECT_EQ(module.state(module.find_state("scale")).tier, 2);
}

TEST(Print, CommentsBlankLinesAndWindowsLineEndsAreFine) {
  const Module module = parse(
      "// about\r\nmodule {\r\n\r\n  graph g {\r\n  // nothing\r\n    input %x : f32[2]\r\n  }\r\n}\r\n", registry());
  EXPECT_EQ(module.graph("g").inputs.size(), 1U);
}

double through_text(double value) {
  Module module;
  module.registry = &registry();
  Builder b(module, "g");
  apply("probe", {b.input("x", {DType::f32, {2}})}, {{"ratio", value}});
  const Module back = parse(to_text(module), registry());
  return back.graph("g").nodes.front().attributes.real("ratio");
}

TEST(Print, RealsComeBackToTheBit) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1.0 / 3.0, 1e-300, 5e-324, 1e300, 1e22, 123456789.0, -2.5e-7,
                             0x1.fffffffffffffp+1023, infinity, -infinity})
    EXPECT_EQ(std::bit_cast<std::uint64_t>(through_text(value)), std::bit_cast<std::uint64_t>(value)) << value;
  std::uint64_t bits = 1;
  for (int i = 0; i < 2000; ++i) {
    bits = bits * 6364136223846793005U + 1442695040888963407U;
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(through_text(value)), bits) << value;
  }
}

TEST(Print, NanIsRefusedWhereItIsGiven) {
  Module module;
  module.registry = &registry();
  Builder b(module, "g");
  const Value x = b.input("x", {DType::f32, {2}});
  try {
    apply("probe", {x}, {{"ratio", std::nan("")}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "probe: attribute 'ratio' of probe is not a number");
  }
  EXPECT_THROW(b.parameter("w", {2, 2}, Init::normal(std::nan(""))), Error);
}

TEST(Print, CompactedModuleIsWhatComesBack) {
  Module module;
  module.registry = &registry();
  Builder b(module, "g");
  const Value x = b.input("x", {DType::f32, {2, 3}});
  b.parameter("unused", {3, 3}, Init::normal(1));
  const Value y = apply1("relu", {x});
  b.output("y", apply1("add", {y, x}));
  const Module back = parse(to_text(module), registry());
  EXPECT_FALSE(equal(back, module));  // the read of @unused
  module.graph("g").compact();
  EXPECT_TRUE(equal(back, module));
}

TEST(Print, GraphvizHasEveryNodeAndEdge) {
  const Module module = parse(kEverything, registry());
  const std::string dot = to_dot(module, module.graph("micro"));
  EXPECT_EQ(dot.find("digraph \"micro\" {\n"), 0U);
  EXPECT_EQ(dot.substr(dot.size() - 2), "}\n");
  EXPECT_NE(dot.find("n0 [label=\"matmul\\na\\nf32[4,8]\""), std::string::npos) << dot;
  EXPECT_NE(dot.find("n0 -> n1;"), std::string::npos);
  EXPECT_NE(dot.find("[label=\"@w\\nf32[8,16]\", shape=box"), std::string::npos);
  EXPECT_NE(dot.find("n1 -> w6 [style=dashed];"), std::string::npos);  // write add @loss = %b:1
  std::size_t depth = 0;
  for (const char c : dot) depth += c == '{' ? 1U : c == '}' ? static_cast<std::size_t>(-1) : 0U;
  EXPECT_EQ(depth, 0U);
  // Every name that is pointed at is declared.
  for (std::size_t at = dot.find("-> "); at != std::string::npos; at = dot.find("-> ", at + 1)) {
    const std::size_t end = dot.find_first_of(" ;", at + 3);
    EXPECT_NE(dot.find("  " + dot.substr(at + 3, end - at - 3) + " [label="), std::string::npos) << dot.substr(at, 12);
  }
}

}  // namespace
}  // namespace trireme::ir
