#include "trireme/ir/builder.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"

namespace trireme::ir {
namespace {

class BuilderTest : public ::testing::Test {
 protected:
  BuilderTest() { module.registry = &registry; }

  static std::string message_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return "fine";
  }

  Registry registry = testing::probe_registry();
  Module module;
  TensorType type{DType::f32, {2, 3}};
};

TEST_F(BuilderTest, NamesFollowScopes) {
  const Builder b(module, "micro");
  const Builder block = b.scope("blocks", 3).scope("up");
  const Value w = block.parameter("weight", {3, 3}, Init::normal(0.02));
  const Value x = b.input("x", type);
  const Value y = apply1("matmul", {block.here(x), w});
  const Value z = apply1("relu", {y});
  const Value again = apply1("relu", {y});
  const Value elsewhere = apply1("relu", {y}, {}, "head");
  const Value plain = apply1("relu", {x});
  const Graph& g = module.graph("micro");
  EXPECT_EQ(module.states[0].name, "blocks.3.up.weight");
  EXPECT_EQ(g.value(y.id()).name, "blocks.3.up.matmul");
  EXPECT_EQ(g.value(z.id()).name, "blocks.3.up.relu");
  EXPECT_EQ(g.value(again.id()).name, "blocks.3.up.relu#1");
  EXPECT_EQ(g.value(elsewhere.id()).name, "head.relu");
  EXPECT_EQ(g.value(plain.id()).name, "relu");
  EXPECT_EQ(g.value(apply("pair", {z})[1].id()).name, "blocks.3.up.pair:1");
  verify(module);
}

TEST_F(BuilderTest, ParametersAreSharedByName) {
  const Builder b(module, "micro");
  const Value first = b.parameter("w", {4, 4}, Init::normal(1));
  EXPECT_EQ(b.parameter("w", {4, 4}, Init::normal(1)).id(), first.id());
  EXPECT_EQ(message_of([&] {
              b.parameter("w", {4, 5}, Init::normal(1));
            }),
            "state 'w' is asked for as f32[4,4] and as f32[4,5]");
  EXPECT_TRUE(module.states[0].decayed);
  b.bias("b", {4});
  EXPECT_FALSE(module.states[1].decayed);
  b.state("mean", type, Category::statistics, {});
  EXPECT_EQ(message_of([&] {
              b.state("mean", {DType::f32, {2}}, Category::statistics, {});
            }),
            "state 'mean' is asked for as f32[2,3] and as f32[2]");
  // Another graph reads the same state.
  EXPECT_EQ(Builder(module, "eval").parameter("w", {4, 4}, Init::normal(1)).shape(), Shape({4, 4}));
  EXPECT_EQ(module.states.size(), 3U);
}

TEST_F(BuilderTest, InputsAreSharedByName) {
  const Builder b(module, "micro");
  const Value x = b.input("x", type);
  EXPECT_EQ(b.scope("deep").input("x", type).id(), x.id());
  EXPECT_EQ(message_of([&] { b.input("x", {DType::i32, {2}}); }), "input 'x' is asked for as f32[2,3] and as i32[2]");
}

TEST_F(BuilderTest, NamesThatWouldNotComeBackAreRefused) {
  const Builder b(module, "micro");
  const std::string allowed = "; letters, digits and _ . / # - are allowed, and ':' between them";
  EXPECT_EQ(message_of([&] { b.input("two words", type); }), "value name 'two words' has the character ' '" + allowed);
  EXPECT_EQ(message_of([&] { b.input("", type); }), "a value has an empty name");
  EXPECT_EQ(message_of([&] { b.input("@x", type); }), "value name '@x' has the character '@'" + allowed);
  EXPECT_EQ(message_of([&] { b.input("x:", type); }), "value name 'x:' has the character ':'" + allowed);
  EXPECT_EQ(message_of([&] { b.parameter("w=1", {2}, {}); }), "state name 'w=1' has the character '='" + allowed);
  EXPECT_EQ(message_of([&] { b.scope("a,b").bias("b", {2}); }), "state name 'a,b.b' has the character ','" + allowed);
  EXPECT_EQ(message_of([&] { Builder(module, "a graph"); }), "graph name 'a graph' has the character ' '" + allowed);
  const Value x = b.input("x", type);
  EXPECT_EQ(message_of([&] { b.output("y\n", x); }), "output name 'y\n' has the character '\n'" + allowed);
  EXPECT_EQ(message_of([&] { apply("relu", {x}, {}, "a b"); }),
            "a b.relu: value name 'a b.relu' has the character ' '" + allowed);
  EXPECT_EQ(message_of([&] { b.output("y", x); }), "fine");
  EXPECT_EQ(message_of([&] { b.output("y", x); }), "graph 'micro' has an output 'y' already");
}

TEST_F(BuilderTest, CompositesExpandWithTheirDefaults) {
  const Builder b(module, "micro");
  const Value x = b.scope("net").here(b.input("x", type));
  const Value y = apply1("twice", {x});
  EXPECT_EQ(module.graph("micro").value(y.id()).name, "net.add");
  EXPECT_EQ(module.graph("micro").value(apply1("twice", {x}, {}, "other").id()).name, "other.add");
  EXPECT_EQ(message_of([&] { apply("twice", {x}, {{"factor", 3.0}}); }), "twice is twice");
  EXPECT_EQ(message_of([&] { apply("twice", {x}, {{"speed", 3.0}}); }), "twice has no attribute 'speed'");
  EXPECT_EQ(message_of([&] { apply("twice", {x, x}); }), "twice takes 1 operands, got 2");
}

TEST_F(BuilderTest, ErrorsNameTheNode) {
  const Builder b(module, "micro");
  const Value x = b.scope("net").here(b.input("x", type));
  EXPECT_EQ(message_of([&] { apply("relu", {x, x}); }), "net.relu: relu takes 1 operands, got 2");
  EXPECT_EQ(message_of([&] {
              apply("probe", {x}, {{"ratio", true}});
            }),
            "net.probe: attribute 'ratio' of probe must be a real, got true");
  EXPECT_EQ(message_of([&] { apply("rely", {x}); }), "there is no op 'rely'; did you mean 'relu'?");
  EXPECT_TRUE(module.graph("micro").nodes.empty());
}

TEST_F(BuilderTest, AccumulateMakesAStepLocalSum) {
  const Builder b(module, "micro");
  const Value loss = b.constant(2.0, {DType::f32, {}});
  b.accumulate("loss", loss);
  b.accumulate("loss", loss);
  EXPECT_EQ(to_text(module), R"(module {
  state @loss : f32[] category=scalars init=zeros unsaved step_local
  graph micro {
    %constant = fill() {value=2.0} : f32[]
    write add @loss = %constant
    write add @loss = %constant
  }
}
)");
}

TEST_F(BuilderTest, RenameIsAllAtOnce) {
  const Builder b(module, "micro");
  const std::vector<Value> pair = apply("pair", {b.input("x", type)});
  Graph& g = module.graph("micro");
  const std::vector<ValueId> ids = {pair[0].id(), pair[1].id()};
  g.rename(ids, std::vector<std::string>{"pair:1", "pair"});
  EXPECT_EQ(g.value(ids[0]).name, "pair:1");
  EXPECT_EQ(message_of([&] { g.rename(std::vector<ValueId>{ids[0]}, std::vector<std::string>{"x"}); }),
            "graph 'micro' already has a value named 'x'");
}

}  // namespace
}  // namespace trireme::ir
