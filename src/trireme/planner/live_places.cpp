#include "trireme/planner/live_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "trireme/program/memory_plan.h"

namespace trireme::planner {
namespace {

// The number of its layer, "blocks.12.attn", and what stands before and after it.
struct Numbered {
  std::string_view before, after;
  std::int64_t layer = 0;
};

std::optional<Numbered> numbered(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    std::int64_t layer = 0;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, layer);
    if (error == std::errc() && rest == name.data() + end && end > begin)
      return Numbered{name.substr(0, begin), name.substr(end), layer};
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace

LivePlaces live_places(const program::Program& program) {
  // A rank has one run of layers, or one for each chunk: each is named from both of its ends.
  constexpr std::int64_t kEnds = 2;
  std::set<std::int64_t> layers;
  for (const program::Instruction& i : program.instructions)
    if (const auto n = numbered(i.name)) layers.insert(n->layer);
  std::unordered_map<std::int64_t, std::string> places;
  int run = -1;
  for (auto first = layers.begin(); first != layers.end();) {
    auto last = first;
    while (std::next(last) != layers.end() && *std::next(last) == *last + 1) ++last;
    ++run;
    for (std::int64_t layer = *first; layer <= *last; ++layer)
      places[layer] = layer - *first < kEnds  ? fmt::format("{}+{}", run, layer - *first)
                      : *last - layer < kEnds ? fmt::format("{}-{}", run, *last - layer)
                                              : fmt::format("{}", run);
    first = std::next(last);
  }
  LivePlaces result;
  const std::vector<std::size_t> live = program::live_bytes(program);
  std::size_t most = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    std::string key = instruction.op == nullptr ? std::string() : instruction.op->name;
    key += static_cast<char>('a' + static_cast<int>(instruction.kind));
    key += static_cast<char>('a' + static_cast<int>(instruction.phase));
    if (const auto n = numbered(instruction.name))
      key += fmt::format("{}[{}]{}", n->before, places.at(n->layer), n->after);
    else
      key += instruction.name;
    double& bytes = result.bytes[key];
    bytes = std::max(bytes, static_cast<double>(live[i]));
    most = std::max(most, live[i]);
  }
  result.padding = static_cast<double>(program.arena_bytes) - static_cast<double>(most);
  return result;
}

double extended_arena(const LivePlaces& one, const LivePlaces& two, double further) {
  double most = 0;
  for (const auto& [place, bytes] : two.bytes) {
    const auto before = one.bytes.find(place);
    most = std::max(most, before == one.bytes.end() ? bytes : bytes + further * (bytes - before->second));
  }
  return most + std::min(one.padding, two.padding);
}

}  // namespace trireme::planner
