#pragma once
#include <array>
#include <string_view>

namespace trireme::passes {

// Graphs that some steps run once, around the update: they read states and set others.
inline constexpr const char* kPrune = "prune";        // before it: which elements are kept from now on
inline constexpr const char* kRemember = "remember";  // after it: the weights are kept in mind
inline constexpr const char* kRewind = "rewind";      // after it: they become what they were then

// Whether a graph is one of these.
inline bool is_state_graph(std::string_view name) {
  constexpr std::array<std::string_view, 3> kAll = {kPrune, kRemember, kRewind};
  for (const std::string_view graph : kAll)
    if (graph == name) return true;
  return false;
}

}  // namespace trireme::passes
