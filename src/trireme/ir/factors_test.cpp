#include "trireme/ir/factors.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

TEST(Factors, ParsesAndPrints) {
  for (const char* text : {"b s k, n k, n -> b s n", "b s d!, d! -> b s d!, b s", "n h~ w~ c -> n h~ w~ k", "b -> -",
                           "-, a -> a", " -> a b"})
    EXPECT_EQ(parse_factors(text).str(), text);
  EXPECT_EQ(parse_factors("b  s,k->  s").str(), "b s, k -> s");
}

TEST(Factors, DimensionsOfOneFactorGoTogether) {
  const Factors f = parse_factors("b s k, n k! -> b s n");
  ASSERT_EQ(f.factors.size(), 4U);
  EXPECT_EQ(f.inputs[0], (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(f.inputs[1], (std::vector<int>{3, 2}));
  EXPECT_EQ(f.outputs[0], (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(f.factors[2].kind, Factor::Kind::whole);  // said once, true everywhere
  EXPECT_EQ(f.str(), "b s k!, n k! -> b s n");
}

TEST(Factors, MalformedTextIsRefused) {
  for (const char* text : {"", "a, b", "a -> b -> c", "! -> a", "a -> ~", "a! -> a~", "a.b -> a", "a -> b!!"})
    EXPECT_THROW(parse_factors(text), Error) << text;
}

}  // namespace
}  // namespace trireme::ir
