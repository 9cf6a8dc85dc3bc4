#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/mesh.h"

namespace trireme::ir {

// An axis along which some values are sharded over all ranks, and others over groups of them whose ranks have the same,
// is in a graph's mesh as two parts, the groups and the ranks of one:
//
//   split_axis(dp=2,tp=8, "tp", 2)     dp=2,tp.0=2,tp.1=4      ranks 0–3 of tp have one key head, 4–7 the other
//
// Ranks keep their numbers. To users it stays one axis.
Mesh split_axis(const Mesh& mesh, std::string_view axis, int groups);

// The axes of the mesh that an axis named by a user is: itself, or its parts, outermost first.
std::vector<std::string> parts_of(const Mesh& mesh, std::string_view axis);

// The axis of which one is a part; itself.
std::string_view axis_of_part(std::string_view part);

// Whether they are all of the parts of one axis, in their order.
bool are_all_parts(const Mesh& mesh, const std::vector<std::string>& axes);

}  // namespace trireme::ir
