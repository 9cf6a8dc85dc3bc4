#include "trireme/ir/sharding.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

TEST(Sharding, ParsesAndPrints) {
  for (const char* text : {"", "[dp]", "[dp,_,tp+h]", "[_,_] partial(sum:tp)", "[] partial(max:dp)",
                           "[dp,_] partial(sum:tp,max:h,softmax:w)"}) {
    EXPECT_EQ(parse_sharding(text).str(), text);
    EXPECT_EQ(parse_sharding(parse_sharding(text).str()), parse_sharding(text));
  }
  EXPECT_EQ(parse_sharding(" [ dp , _ ]  partial( sum:tp ) ").str(), "[dp,_] partial(sum:tp)");
  const Sharding s = parse_sharding("[_,tp+h] partial(softmax:dp)");
  EXPECT_EQ(s.dims[1], (std::vector<std::string>{"tp", "h"}));
  EXPECT_EQ(s.partial[0].reduce, Sharding::Reduce::softmax);
  EXPECT_FALSE(s.replicated());
}

TEST(Sharding, ReplicatedIsOneSharding) {
  EXPECT_TRUE(parse_sharding("[_,_]").replicated());
  EXPECT_EQ(parse_sharding("[_,_]"), Sharding{});
  EXPECT_EQ(parse_sharding("[_,_]").str(), "");
  EXPECT_NE(parse_sharding("[_,dp]"), parse_sharding("[dp,_]"));
}

TEST(Sharding, MalformedTextIsRefused) {
  for (const char* text : {"dp", "[dp", "dp]", "[dp] sum:tp", "[dp] partial(sum:tp", "[dp] partial()",
                           "[dp] partial(sum)", "[dp] partial(min:tp)", "[dp] partial(sum:tp:h)", "[dp] partial(sum:)",
                           "[,]", "[dp,]", "[dp+]", "[+dp]", "[d p]", "[dp] x", "[DP]", "[_+dp]"})
    EXPECT_THROW(parse_sharding(text), Error) << text;
}

}  // namespace
}  // namespace trireme::ir
