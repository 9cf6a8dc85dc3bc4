#include "trireme/ir/axis_parts.h"

#include <fmt/format.h>

#include "trireme/core/error.h"

namespace trireme::ir {

std::string_view axis_of_part(std::string_view part) { return part.substr(0, part.find('.')); }

Mesh split_axis(const Mesh& mesh, std::string_view axis, int groups) {
  Mesh split;
  for (const Mesh::Axis& own : mesh.axes) {
    if (own.name != axis) {
      split.axes.push_back(own);
      continue;
    }
    TRI_CHECK(groups > 0 && own.size % groups == 0, "{}={} in {} groups", axis, own.size, groups);
    split.axes.push_back({fmt::format("{}.0", axis), groups});
    split.axes.push_back({fmt::format("{}.1", axis), own.size / groups});
  }
  return split;
}

std::vector<std::string> parts_of(const Mesh& mesh, std::string_view axis) {
  std::vector<std::string> parts;
  for (const Mesh::Axis& own : mesh.axes)
    if (own.name == axis || axis_of_part(own.name) == axis) parts.push_back(own.name);
  if (parts.empty()) parts.emplace_back(axis);
  return parts;
}

bool are_all_parts(const Mesh& mesh, const std::vector<std::string>& axes) {
  return axes.size() > 1 && axes == parts_of(mesh, axis_of_part(axes.front()));
}

}  // namespace trireme::ir
