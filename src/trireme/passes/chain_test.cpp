#include "trireme/passes/chain.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace trireme::passes
