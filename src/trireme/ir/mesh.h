#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme::ir {

// Ranks arranged along named axes; the last axis is the most adjacent ranks. One rank is the empty mesh.
struct Mesh {
  struct Axis {
    std::string name;  // pp, dp, tp, h, w
    int size = 1;
    friend bool operator==(const Axis&, const Axis&) = default;
  };
  std::vector<Axis> axes;

  int ranks() const;
  int size_of(std::string_view axis) const;  // or of several, "dp+tp"; 1 for an axis that is not there
  // Of the axis in `axes`; throws for one that is not there.
  std::size_t index_of(std::string_view axis) const;
  // Position of `rank` along each axis.
  std::vector<int> coordinate(int rank) const;

  std::string str() const;  // "pp=2,dp=2"
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// "pp=2,dp=2,tp=2"; "" is one rank. Refuses unknown or repeated axes and sizes below 1.
Mesh parse_mesh(std::string_view text);

}  // namespace trireme::ir
