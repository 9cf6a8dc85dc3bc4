#include "trireme/ir/slice.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::ir {
namespace {

using Rows = std::vector<StoredRows>;

State state(const Shape& part, const Shape& whole, std::vector<std::vector<std::string>> dims) {
  State s;
  s.name = "w";
  s.type = {DType::f32, part};
  s.whole = whole;
  s.sharding.dims = std::move(dims);
  return s;
}

TEST(StoredRows, OfAStateThatEveryRankStoresAreAllOfIt) {
  const Mesh mesh = parse_mesh("dp=3");
  EXPECT_EQ(stored_rows(state({4, 6}, {}, {}), mesh, mesh.coordinate(2)), (Rows{{{{0, 0}, {4, 6}}, 0}}));
  EXPECT_EQ(stored_rows(state({2, 3, 6}, {}, {}), mesh, mesh.coordinate(2)), (Rows{{{{0, 0}, {6, 6}}, 0}}));
  EXPECT_EQ(stored_rows(state({7}, {}, {}), mesh, mesh.coordinate(2)), (Rows{{{{0}, {7}}, 0}}));
  EXPECT_EQ(stored_rows(state({}, {}, {}), mesh, mesh.coordinate(2)), (Rows{{{{}, {}}, 0}}));
}

TEST(StoredRows, EndWhereTheStateDoes) {
  const Mesh mesh = parse_mesh("tp=4");
  const State s = state({3, 8}, {7, 8}, {{"tp"}, {}});
  EXPECT_EQ(stored_rows(s, mesh, mesh.coordinate(0)), (Rows{{{{0, 0}, {3, 8}}, 0}}));
  EXPECT_EQ(stored_rows(s, mesh, mesh.coordinate(2)), (Rows{{{{6, 0}, {1, 8}}, 0}}));
  EXPECT_TRUE(stored_rows(s, mesh, mesh.coordinate(3)).empty());
}

TEST(StoredRows, OfTwoDimensionsAndTwoAxesCountTheOutermostFirst) {
  const Mesh mesh = parse_mesh("dp=2,tp=3");
  const State columns = state({4, 2}, {4, 6}, {{}, {"tp"}});
  EXPECT_EQ(stored_rows(columns, mesh, mesh.coordinate(4)), (Rows{{{{0, 2}, {4, 2}}, 0}}));  // dp=1, tp=1
  const State rows = state({2, 6}, {12, 6}, {{"tp", "dp"}, {}});
  EXPECT_EQ(stored_rows(rows, mesh, mesh.coordinate(4)), (Rows{{{{6, 0}, {2, 6}}, 0}}));  // shard 1·2 + 1
}

TEST(StoredRows, OfAnInnerDimensionAreSeveralRuns) {
  const Mesh mesh = parse_mesh("tp=2");
  const State s = state({3, 2, 4, 8}, {3, 4, 4, 8}, {{}, {"tp"}, {}, {}});
  EXPECT_EQ(stored_rows(s, mesh, mesh.coordinate(1)),
            (Rows{{{{8, 0}, {8, 8}}, 0}, {{{24, 0}, {8, 8}}, 8}, {{{40, 0}, {8, 8}}, 16}}));
}

TEST(StoredRows, OfABlocksRowsFollowItsRuns) {
  const Mesh mesh = parse_mesh("dp=2,tp=2");
  State s = state({12, 8}, {3, 4, 4, 8}, {{}, {"tp"}, {}, {}});
  s.block = {3, 2, 4, 8};
  s.row_axes = {"dp"};
  EXPECT_EQ(stored_rows(s, mesh, mesh.coordinate(1)),  // dp=0, tp=1
            (Rows{{{{8, 0}, {8, 8}}, 0}, {{{24, 0}, {4, 8}}, 8}}));
  EXPECT_EQ(stored_rows(s, mesh, mesh.coordinate(3)),  // dp=1, tp=1
            (Rows{{{{28, 0}, {4, 8}}, 0}, {{{40, 0}, {8, 8}}, 4}}));
}

TEST(StoredRows, OfARoleThatKeepsSomeRowsBeginAtThem) {
  State s = state({5, 4}, {20, 4}, {});
  s.block = {20, 4};
  s.first_row = 10;
  EXPECT_EQ(stored_rows(s, {}, {}), (Rows{{{{10, 0}, {5, 4}}, 0}}));
}

// Whatever is sharded over whatever, with padding: every element is stored once by the ranks together.
TEST(StoredRows, OfAllRanksTileTheState) {
  const Mesh mesh = parse_mesh("dp=2,tp=3");
  const std::vector<std::string> none;
  for (const std::vector<std::string>& first : {none, {"tp"}})
    for (const std::vector<std::string>& second : {none, {"tp"}})
      for (const std::vector<std::string>& third : {none, {"tp"}})
        for (const bool rows : {false, true}) {
          if (first.size() + second.size() + third.size() > 1) continue;
          const Shape whole{4, 5, 7};
          Shape block = whole;
          const std::vector<std::vector<std::string>> dims = {first, second, third};
          for (int d = 0; d < 3; ++d)
            if (!dims[index(d)].empty()) block[d] = (whole[d] + 2) / 3;
          State s = state(block, whole, dims);
          if (rows) {
            s.block = block;
            s.row_axes = {"dp"};
            s.type.shape = block.as_rows();
            s.type.shape[0] = (s.type.shape[0] + 1) / 2;
          }
          std::multiset<std::int64_t> seen;
          for (int rank = 0; rank < 6; ++rank) {
            const std::vector<int> at = mesh.coordinate(rank);
            // Of ranks that store the same the first counts.
            if ((!rows && at[0] > 0) || (first.size() + second.size() + third.size() == 0 && at[1] > 0)) continue;
            for (const StoredRows& stored : stored_rows(s, mesh, at))
              for (std::int64_t r = 0; r < stored.rows.extent[0]; ++r)
                for (std::int64_t c = 0; c < stored.rows.extent[1]; ++c)
                  seen.insert((stored.rows.start[0] + r) * 7 + stored.rows.start[1] + c);
          }
          EXPECT_EQ(seen.size(), 140U);
          EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 140U);
        }
}

}  // namespace
}  // namespace trireme::ir
