#include "trireme/ops/collective/halo.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/ops/all.h"

namespace trireme::ops {
namespace {

using ir::Range;

// A kernel larger than the slices: what the last rank needs comes from two others.
const std::vector<Range> kHave = {{0, 2}, {2, 3}, {3, 7}};
const std::vector<Range> kNeed = {{0, 4}, {0, 7}, {1, 7}};

TEST(Halo, EveryNeededRowComesFromTheRankThatHasIt) {
  for (int place = 0; place < 3; ++place) {
    const Halo halo(2, place, kHave, kNeed);
    std::vector<int> came(7, 0);
    for (std::int64_t i = ir::overlap(halo.own(), halo.needed()).first; i < ir::overlap(halo.own(), halo.needed()).last;
         ++i)
      ++came[static_cast<std::size_t>(i)];
    for (const HaloMessages& m : halo_messages(halo, false, 8)) {
      // The other rank sends what this one expects.
      const Halo other(2, m.peer, kHave, kNeed);
      bool found = false;
      for (const HaloMessages& theirs : halo_messages(other, false, 8))
        if (theirs.peer == place) {
          found = true;
          EXPECT_EQ(theirs.out, m.in);
          EXPECT_EQ(theirs.in, m.out);
        }
      EXPECT_TRUE(found);
      for (std::int64_t i = m.in.first; i < m.in.last; ++i) ++came[static_cast<std::size_t>(i)];
    }
    for (std::int64_t i = 0; i < 7; ++i)
      EXPECT_EQ(came[static_cast<std::size_t>(i)], i >= halo.needed().first && i < halo.needed().last ? 1 : 0);
  }
}

TEST(Halo, AttributesSayTheSame) {
  const Halo halo(1, 2, kHave, kNeed);
  const Halo read(halo.attributes("h"));
  EXPECT_EQ(read.have, kHave);
  EXPECT_EQ(read.need, kNeed);
  EXPECT_EQ(read.place, 2);
  EXPECT_EQ(halo.rows_given(), 5);  // row 3 to the first, 3 to 6 to the second
  EXPECT_EQ(halo.rows_taken(), 2);
  EXPECT_FALSE(halo.same());
  EXPECT_FALSE(halo.local());
}

TEST(Halo, InfersWhatARankGets) {
  const ir::Registry registry = builtin();
  const ir::Attributes attributes = Halo(1, 0, kHave, kNeed).attributes("h");
  const TensorType own{DType::f32, {5, 2, 3}};
  const TensorType needed{DType::f32, {5, 4, 3}};
  EXPECT_EQ(registry.at(kHaloExchange).infer(std::vector{own}, attributes).front(), needed);
  EXPECT_EQ(registry.at(kHaloReduce).infer(std::vector{needed}, attributes).front(), own);
  EXPECT_THROW(registry.at(kHaloExchange).infer(std::vector{needed}, attributes), Error);
  EXPECT_THROW(registry.at(kHaloReduce).infer(std::vector{own}, attributes), Error);
}

}  // namespace
}  // namespace trireme::ops
