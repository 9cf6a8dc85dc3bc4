#include "trireme/ir/graph.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

State named(const std::string& name) {
  State state;
  state.name = name;
  state.type = {DType::f32, {2}};
  return state;
}

TEST(Graph, OneValueReadsAState) {
  Module module;
  const StateId a = module.add_state(named("a"));
  const StateId b = module.add_state(named("b"));
  Graph& graph = module.add_graph("micro");
  const ValueId first = graph.read(module, a);
  EXPECT_EQ(graph.read(module, a), first);
  EXPECT_NE(graph.read(module, b), first);
  EXPECT_EQ(graph.values.size(), 2U);

  // A pass lets the value read another state, in its place.
  const StateId next = module.add_state(named("a/next"));
  graph.value(first).state = next;
  graph.rename(std::array{first}, std::array{std::string("@a/next")});
  EXPECT_EQ(graph.read(module, next), first);
  const ValueId again = graph.read(module, a);
  EXPECT_NE(again, first);
  EXPECT_EQ(graph.read(module, a), again);
  EXPECT_EQ(graph.values.size(), 3U);
}

TEST(Graph, ReadsAreFoundAfterValuesWereRenumbered) {
  Module module;
  const StateId a = module.add_state(named("a"));
  const StateId b = module.add_state(named("b"));
  Graph& graph = module.add_graph("micro");
  graph.read(module, a);
  graph.outputs.push_back({"b", graph.read(module, b)});
  graph.compact();  // nobody mentions @a
  ASSERT_EQ(graph.values.size(), 1U);
  EXPECT_EQ(graph.read(module, b), 0);
  EXPECT_EQ(graph.read(module, a), 1);
  Graph copy = graph;
  EXPECT_EQ(copy.read(module, a), 1);
  EXPECT_EQ(copy, graph);
}

TEST(Module, StatesAreFoundByTheirNamesOfNow) {
  Module module;
  module.add_state(named("a"));
  const StateId b = module.add_state(named("b"));
  EXPECT_EQ(module.find_state("b"), b);
  EXPECT_THROW(module.add_state(named("b")), Error);
  module.state(b).name = "c";
  EXPECT_EQ(module.find_state("b"), kNone);
  EXPECT_EQ(module.find_state("c"), b);

  module.states.erase(module.states.begin());
  EXPECT_EQ(module.find_state("a"), kNone);
  EXPECT_EQ(module.find_state("c"), 0);
  EXPECT_EQ(module.add_state(named("a")), 1);
  EXPECT_THROW(module.add_state(named("c")), Error);

  Module copy = module;
  EXPECT_EQ(copy.find_state("a"), 1);
  EXPECT_EQ(copy.add_state(named("d")), 2);
  EXPECT_EQ(module.find_state("d"), kNone);
}

}  // namespace
}  // namespace trireme::ir
