#include "trireme/ir/mesh.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"

namespace trireme::ir {

int Mesh::ranks() const {
  int product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

int Mesh::size_of(std::string_view name) const {
  int size = 1;
  for (std::size_t begin = 0; begin <= name.size();) {  // a step of training asks: nothing is allocated
    const std::size_t end = std::min(name.find('+', begin), name.size());
    for (const Axis& axis : axes)
      if (axis.name == name.substr(begin, end - begin)) size *= axis.size;
    begin = end + 1;
  }
  return size;
}

std::size_t Mesh::index_of(std::string_view name) const {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return i;
  fail("mesh '{}' has no axis '{}'", str(), name);
}

std::vector<int> Mesh::coordinate(int rank) const {
  std::vector<int> at(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    at[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return at;
}

std::string Mesh::str() const {
  std::vector<std::string> parts;
  for (const Axis& axis : axes) parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, ","));
}

Mesh parse_mesh(std::string_view text) {
  constexpr std::int64_t kMaxRanks = 1 << 24;
  Mesh mesh;
  std::int64_t ranks = 1;
  if (trim(text).empty()) return mesh;
  for (const std::string& part : split(text, ',')) {
    const std::string_view item = trim(part);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) refuse("mesh axis '{}' must look like dp=2", item);
    const std::string name(trim(item.substr(0, equals)));
    const std::string_view number = trim(item.substr(equals + 1));
    // A graph's mesh may have an axis in parts (ir/axis_parts.h).
    if (std::find(kAxes.begin(), kAxes.end(), name.substr(0, name.find('.'))) == kAxes.end())
      refuse("unknown mesh axis '{}': the axes are {}", name, fmt::join(kAxes, ", "));
    int size = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (error != std::errc() || end != number.data() + number.size() || size < 1)
      refuse("mesh axis {} must be a whole number of at least 1, got '{}'", name, number);
    for (const Mesh::Axis& axis : mesh.axes)
      if (axis.name == name) refuse("mesh axis '{}' is given twice", name);
    mesh.axes.push_back({name, size});
    ranks *= size;
    if (ranks > kMaxRanks) refuse("mesh '{}' has more than {} ranks", text, kMaxRanks);
  }
  return mesh;
}

}  // namespace trireme::ir
