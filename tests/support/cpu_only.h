#pragma once
#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::testing {

// Ops that have no kernel on a GPU. Any other that lacks one there is a failure of its tests, and no reason to skip
// them; Builtin.WhatHasNoKernelOnAGpuIsListed compares the list with what is registered.
inline constexpr std::array<std::string_view, 2> kCpuOnly = {"keep_largest", "ramp"};

inline bool is_cpu_only(std::string_view op) {
  return std::find(kCpuOnly.begin(), kCpuOnly.end(), op) != kCpuOnly.end();
}

}  // namespace trireme::testing
