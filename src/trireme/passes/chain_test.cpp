#include "trireme/passes/chain.h"

#include <gtest/gtest.h>

#include "trireme/ir/print.h"
#include "trireme/ops/all.h"

namespace trireme::passes {
namespace {

TEST(Chain, LayersFollowTheNamesOfTheModel) {
  EXPECT_EQ(layer_of("blocks.3.attn.qkv.matmul"), "blocks.3");
  EXPECT_EQ(layer_of("blocks.12.add#1"), "blocks.12");
  EXPECT_EQ(layer_of("stages.0.1.bn1.relu"), "stages.0.1");
  EXPECT_EQ(layer_of("layers.7.matmul"), "layers.7");
  EXPECT_EQ(layer_of("model.blocks.3.up"), "model.blocks.3");
  EXPECT_EQ(layer_of("head.matmul"), "head");
  EXPECT_EQ(layer_of("ln_f.layer_norm:1"), "ln_f");
  EXPECT_EQ(layer_of("x"), "x");
}

// What a model does outside of its layers' scopes, here a norm before each and the sum behind it, hides none of them.
TEST(Chain, LayersBeginWhereTheirFirstPartIs) {
  const ir::Registry registry = ops::builtin();
  const ir::Module module = ir::parse(R"(module {
  state @blocks.0.up : f32[8,8] trained
  state @blocks.1.up : f32[8,8] trained
  state @blocks.2.up : f32[8,8] trained
  graph micro {
    input %x : f32[4,8]
    %first = relu(%x) : f32[4,8]
    %blocks.0.matmul = matmul(%first, @blocks.0.up) : f32[4,8]
    %add = add(%x, %blocks.0.matmul) : f32[4,8]
    %second = relu(%add) : f32[4,8]
    %blocks.1.matmul = matmul(%second, @blocks.1.up) : f32[4,8]
    %add#1 = add(%add, %blocks.1.matmul) : f32[4,8]
    %third = relu(%add#1) : f32[4,8]
    %blocks.2.matmul = matmul(%third, @blocks.2.up) : f32[4,8]
    %add#2 = add(%add#1, %blocks.2.matmul) : f32[4,8]
    %sum = sum_squares(%add#2) : f32[]
    output loss = %sum
  }
})",
                                      registry);
  const ir::Graph& graph = module.graph("micro");
  const Chain chain = find_chain(graph, free_values(module, graph));
  std::vector<std::string> begins;
  for (const std::size_t s : layer_begins(chain)) begins.push_back(chain.segments[s].numbered);
  EXPECT_EQ(begins, (std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"}));
}

// A pipeline is also cut where a layer begins while other tensors go past it; within a layer it is not.
TEST(Chain, StagesAreCutBetweenLayersAcrossSkips) {
  const ir::Registry registry = ops::builtin();
  const ir::Module module = ir::parse(R"(module {
  state @first : f32[8,8] trained
  state @blocks.0.up : f32[8,8] trained
  state @blocks.1.up : f32[8,8] trained
  state @blocks.1.down : f32[8,8] trained
  state @blocks.2.up : f32[8,8] trained
  graph micro {
    input %x : f32[4,8]
    %first.matmul = matmul(%x, @first) : f32[4,8]
    %blocks.0.matmul = matmul(%first.matmul, @blocks.0.up) : f32[4,8]
    %add = add(%first.matmul, %blocks.0.matmul) : f32[4,8]
    %blocks.1.matmul = matmul(%add, @blocks.1.up) : f32[4,8]
    %blocks.1.relu = relu(%blocks.1.matmul) : f32[4,8]
    %blocks.1.matmul#1 = matmul(%blocks.1.relu, @blocks.1.down) : f32[4,8]
    %add#1 = add(%first.matmul, %blocks.1.matmul#1) : f32[4,8]
    %blocks.2.matmul = matmul(%add#1, @blocks.2.up) : f32[4,8]
    %add#2 = add(%add, %blocks.2.matmul) : f32[4,8]
    %sum = sum_squares(%add#2) : f32[]
    output loss = %sum
  }
})",
                                      registry);
  const ir::Graph& graph = module.graph("micro");
  const auto firsts = [&](const Chain& chain) {
    std::vector<std::string> all;
    for (const Segment& segment : chain.segments) all.push_back(first_value(graph, chain, segment));
    return all;
  };
  const std::vector<bool> free = free_values(module, graph);
  EXPECT_EQ(firsts(find_chain(graph, free)), (std::vector<std::string>{"first.matmul", "blocks.0.matmul", "sum"}));
  const Chain cut = find_stage_chain(graph, free);
  EXPECT_EQ(firsts(cut),
            (std::vector<std::string>{"first.matmul", "blocks.0.matmul", "blocks.1.matmul", "blocks.2.matmul", "sum"}));
  EXPECT_EQ(layer_begins(cut), (std::vector<std::size_t>{1, 2, 3}));
}

}  // namespace
}  // namespace trireme::passes
