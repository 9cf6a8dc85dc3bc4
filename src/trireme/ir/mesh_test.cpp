#include "trireme/ir/mesh.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

std::string refused(const char* text) {
  try {
    parse_mesh(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    return e.message();
  }
  return "parsed";
}

TEST(Mesh, ParsesAndPrints) {
  for (const char* text : {"", "dp=2", "pp=2,dp=3,tp=4", "h=2,w=2", "dp=1"}) EXPECT_EQ(parse_mesh(text).str(), text);
  EXPECT_EQ(parse_mesh(" pp = 2 , dp=3 ").str(), "pp=2,dp=3");
}

TEST(Mesh, RanksAndCoordinates) {
  const Mesh mesh = parse_mesh("pp=2,dp=3,tp=4");
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.size_of("dp"), 3);
  EXPECT_EQ(mesh.size_of("h"), 1);
  EXPECT_EQ(mesh.coordinate(23), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(mesh.coordinate(1), (std::vector<int>{0, 0, 1}));  // the last axis is the most adjacent ranks
  // Each rank has its own.
  std::set<std::vector<int>> places;
  for (int rank = 0; rank < mesh.ranks(); ++rank) EXPECT_TRUE(places.insert(mesh.coordinate(rank)).second) << rank;
  EXPECT_EQ(Mesh{}.ranks(), 1);
  EXPECT_TRUE(Mesh{}.coordinate(0).empty());
}

TEST(Mesh, Refusals) {
  EXPECT_EQ(refused("dp"), "mesh axis 'dp' must look like dp=2");
  EXPECT_EQ(refused("dp=2,"), "mesh axis '' must look like dp=2");
  EXPECT_EQ(refused("data=2"), "unknown mesh axis 'data': the axes are pp, dp, tp, h, w");
  EXPECT_EQ(refused("dp=0"), "mesh axis dp must be a whole number of at least 1, got '0'");
  EXPECT_EQ(refused("dp=-1"), "mesh axis dp must be a whole number of at least 1, got '-1'");
  EXPECT_EQ(refused("dp=2x"), "mesh axis dp must be a whole number of at least 1, got '2x'");
  EXPECT_EQ(refused("dp=99999999999"), "mesh axis dp must be a whole number of at least 1, got '99999999999'");
  EXPECT_EQ(refused("dp=2,dp=2"), "mesh axis 'dp' is given twice");
  EXPECT_EQ(refused("dp=100000,tp=100000"), "mesh 'dp=100000,tp=100000' has more than 16777216 ranks");
}

}  // namespace
}  // namespace trireme::ir
