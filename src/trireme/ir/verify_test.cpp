#include "trireme/ir/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"

namespace trireme::ir {
namespace {

const Registry& registry() {
  static const Registry instance = testing::probe_registry();
  return instance;
}

Module sound() {
  return parse(R"(module {
  mesh "dp=2,tp=2"
  state @w : f32[2,3] init=normal(0.02) trained
  state @w/bf16 : bf16[2,3] init=derived unsaved derived_from=@w
  state @sum : f32[2,3] category=gradients unsaved step_local
  graph g {
    input %x : f32[2,3]
    %a = add(%x, @w) : f32[2,3]
    %b = relu(%a) : f32[2,3] phase=input_gradient
    %low = cast(%b) {to="bf16"} : bf16[2,3] phase=weight_gradient
    write add @sum = %low
    write set @w = %b
    output y = %a
  }
}
)",
               registry());
}

ValueId named(const Graph& g, std::string_view name) {
  for (std::size_t i = 0; i < g.values.size(); ++i)
    if (g.values[i].name == name) return static_cast<ValueId>(i);
  ADD_FAILURE() << "no value " << name;
  return kNone;
}

std::string message_after(const std::function<void(Module&, Graph&)>& damage) {
  Module module = sound();
  damage(module, module.graph("g"));
  try {
    verify(module);
  } catch (const Error& e) {
    return e.message();
  }
  return "verified";
}

std::string on_host_text(const std::string& tier, const std::string& operand) {
  return R"(module {
  state @m : f32[4,3] category=optimizer init=zeros tier=)" +
         tier + R"(
  graph g {
    input %x : f32[2,3]
    %s = store(%x) {tier=1} : f32[2,3]
    %r = rows(@m) {end=2} : f32[2,3]
    %a = add(%r, )" +
         operand + R"() : f32[2,3] phase=update on_host
    %b = relu(%a) : f32[2,3] phase=update on_host
    %l = load(%b) : f32[2,3] phase=update
    output y = %l
  }
}
)";
}

TEST(Verify, NodesOnTheHostReadItsMemory) {
  const auto message = [](const std::string& tier, const std::string& operand) -> std::string {
    const std::string text = on_host_text(tier, operand);
    const Module module = parse(text, registry());
    EXPECT_EQ(to_text(module), text);
    EXPECT_TRUE(module.graph("g").nodes[2].on_host);
    try {
      verify(module);
    } catch (const Error& e) {
      return e.message();
    }
    return "verified";
  };
  EXPECT_EQ(message("1", "%s"), "verified");
  EXPECT_EQ(message("1", "%x"),
            "graph 'g': add 'a' is done on the host and reads 'x', which is not in the host's memory");
  EXPECT_EQ(message("2", "%s"),
            "graph 'g': add 'a' is done on the host and reads 'r', which is not in the host's memory");
}

TEST(Verify, SoundModule) {
  EXPECT_EQ(message_after([](Module&, Graph&) {}), "verified");
}

// The number is the invariant in verify.h.
TEST(Verify, Invariant1MadeOnceBeforeRead) {
  EXPECT_EQ(message_after([](Module&, Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }),
            "graph 'g': relu 'b' reads 'a' before it is made");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes.push_back(g.nodes[0]); }), "graph 'g': 'a' is made twice");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.inputs.push_back(g.inputs[0]); }), "graph 'g': 'x' is made twice");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.inputs.clear(); }),
            "graph 'g': add 'a' reads 'x' before it is made");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.inputs.push_back(named(g, "a")); }),
            "graph 'g': the input list makes 'a', which is of another kind");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[1].inputs[0] = 99; }),
            "graph 'g': relu 'b' names a value that does not exist");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[1].outputs[0] = 99; }),
            "graph 'g': relu makes a value that does not exist");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[1].outputs[0] = g.inputs[0]; }),
            "graph 'g': relu 'x' makes 'x', which is of another kind");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.value(named(g, "@w")).state = 77; }),
            "graph 'g': value '@w' reads a state that does not exist");
}

TEST(Verify, Invariant2NodesAreWhatTheirOpInfers) {
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[0].op = nullptr; }), "graph 'g': a node has no op");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[1].inputs.push_back(0); }),
            "graph 'g': relu 'b': relu takes 1 operands, got 2");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[1].inputs[0] = kNone; }),
            "graph 'g': relu 'b': relu needs its operand 'x'");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[2].attributes.set("speed", 1.0); }),
            "graph 'g': cast 'low': cast has no attribute 'speed'");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[2].attributes = {}; }),
            "graph 'g': cast 'low': some of its attributes are missing");
  EXPECT_EQ(message_after([](Module&, Graph& g) {
              g.value(named(g, "b")).type.shape = {3, 2};
            }),
            "graph 'g': output 0 of relu 'b' is f32[3,2], its op infers f32[2,3]");
  EXPECT_EQ(message_after([](Module&, Graph& g) {
              g.nodes[1].outputs.push_back(g.new_value("more", {DType::f32, {}}));
            }),
            "graph 'g': relu 'b' has 2 outputs, its op infers 1");
}

TEST(Verify, Invariant3NamesAreUniqueAndPrintable) {
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.value(named(g, "b")).name = "a"; }),
            "graph 'g': two values are named 'a'");
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.states.push_back(m.states[0]); }),
            "two state variables are named 'w'");
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.graphs.push_back(m.graphs[0]); }), "two graphs are named 'g'");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.outputs.push_back(g.outputs[0]); }),
            "graph 'g': two outputs are named 'y'");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.value(named(g, "b")).name = "b c"; }),
            "graph 'g': value name 'b c' has the character ' '; letters, digits and _ . / # - are allowed, and ':' "
            "between them");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.value(named(g, "@w")).name = "@v"; }),
            "graph 'g': the read of state 'w' is named '@v'");
}

TEST(Verify, Invariant4WritesAndOutputs) {
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.writes[0].state = 9; }),
            "graph 'g': a write names a state that does not exist");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.writes[0].value = kNone; }),
            "graph 'g': the write of 'sum' names a value that does not exist");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.outputs[0].value = 99; }),
            "graph 'g': output 'y' names a value that does not exist");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.writes[1].value = named(g, "low"); }),
            "graph 'g': state 'w' is f32[2,3], written with bf16[2,3]");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.writes.push_back(g.writes[1]); }),
            "graph 'g': state 'w' is set twice");
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.writes[1].mode = Write::Mode::add; }),
            "graph 'g': state 'w' is added to but lives beyond the step");
  EXPECT_EQ(message_after([](Module&, Graph& g) {
              g.writes.push_back({g.writes[0].state, named(g, "b"), Write::Mode::set});
            }),
            "graph 'g': state 'sum' is both set and added to");
}

TEST(Verify, Invariant5PhasesNeverGoBack) {
  EXPECT_EQ(message_after([](Module&, Graph& g) { g.nodes[2].phase = Phase::forward; }),
            "graph 'g': cast 'low' of the forward phase reads 'b', which is made in the backward phase");
  EXPECT_EQ(message_after([](Module&, Graph& g) {
              g.nodes[1].phase = Phase::weight_gradient;
              g.nodes[2].phase = Phase::input_gradient;
            }),
            "graph 'g': cast 'low' of the input gradients reads 'b', which is made with the weight gradients");
}

TEST(Verify, Invariant6DerivedStates) {
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.states[1].derived_from = "v"; }),
            "state 'w/bf16' is derived from 'v', which does not exist");
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.states[2].derived_from = "w/bf16"; }),
            "state 'sum' is derived from 'w/bf16', which is derived itself");
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.states[1].type.shape = {6}; }),
            "state 'w/bf16' is derived from 'w', which has another shape");
}

TEST(Verify, Invariant7Shardings) {
  const auto shard = [](const char* text) {
    return message_after([&](Module&, Graph& g) { g.value(named(g, "a")).sharding = parse_sharding(text); });
  };
  EXPECT_EQ(shard("[dp,tp]"), "verified");
  EXPECT_EQ(shard("[_,_] partial(sum:dp)"), "verified");
  EXPECT_EQ(shard("[dp]"), "graph 'g': 'a' of f32[2,3] has a sharding for 1 dimensions: [dp]");
  EXPECT_EQ(shard("[h,_]"), "graph 'g': 'a' is cut over axis 'h', which mesh 'dp=2,tp=2' does not have");
  EXPECT_EQ(shard("[dp,dp]"), "graph 'g': 'a' uses axis 'dp' twice: [dp,dp]");
  EXPECT_EQ(message_after([](Module& m, Graph&) { m.states[0].sharding = parse_sharding("[dp,_]"); }),
            "graph 'g': 'w' is stored as '[dp,_]' and read as ''");
}

}  // namespace
}  // namespace trireme::ir
