#include "trireme/ir/slice.h"

#include <gtest/gtest.h>

namespace trireme::ir {
namespace {

State state(const Shape& part, const Shape& whole, std::vector<std::vector<std::string>> dims) {
  State s;
  s.name = "w";
  s.type = {DType::f32, part};
  s.whole = whole;
  s.sharding.dims = std::move(dims);
  return s;
}

TEST(Slice, OfAStateThatEveryRankStoresIsAllOfIt) {
  const Mesh mesh = parse_mesh("dp=3");
  const Slice slice = slice_of(state({4, 6}, {}, {}), mesh, mesh.coordinate(2));
  EXPECT_EQ(slice, (Slice{{0, 0}, {4, 6}}));
}

TEST(Slice, EndsWhereTheStateDoes) {
  const Mesh mesh = parse_mesh("dp=4");
  const State s = state({3, 8}, {7, 8}, {{"dp"}});
  EXPECT_EQ(slice_of(s, mesh, mesh.coordinate(0)), (Slice{{0, 0}, {3, 8}}));
  EXPECT_EQ(slice_of(s, mesh, mesh.coordinate(2)), (Slice{{6, 0}, {1, 8}}));
  EXPECT_TRUE(slice_of(s, mesh, mesh.coordinate(3)).empty());
}

TEST(Slice, OfTwoDimensionsAndTwoAxesCountsTheOutermostFirst) {
  const Mesh mesh = parse_mesh("dp=2,tp=3");
  const State columns = state({4, 2}, {4, 6}, {{}, {"tp"}});
  EXPECT_EQ(slice_of(columns, mesh, mesh.coordinate(4)), (Slice{{0, 2}, {4, 2}}));  // dp=1, tp=1
  const State rows = state({2, 6}, {12, 6}, {{"tp", "dp"}});
  EXPECT_EQ(slice_of(rows, mesh, mesh.coordinate(4)), (Slice{{6, 0}, {2, 6}}));  // shard 1·2 + 1
}

TEST(Slice, OfMoreThanTwoDimensionsMayBeOfRows) {
  const Mesh mesh = parse_mesh("dp=2");
  const State s = state({9, 4}, {3, 3, 2, 4}, {{"dp"}});
  EXPECT_EQ(sliced_shape(s), (Shape{18, 4}));
  EXPECT_EQ(slice_of(s, mesh, mesh.coordinate(1)), (Slice{{9, 0}, {9, 4}}));
}

TEST(Slice, OfARoleThatKeepsSomeRowsBeginsAtThem) {
  State s = state({5, 4}, {20, 4}, {});
  s.first_row = 10;
  EXPECT_EQ(slice_of(s, {}, {}), (Slice{{10, 0}, {5, 4}}));
}

}  // namespace
}  // namespace trireme::ir
