#pragma once
#include <array>

// The axes that a mesh may have, by name.
namespace trireme::ir {

inline constexpr const char* kPipelineAxis = "pp";
inline constexpr const char* kDataAxis = "dp";
inline constexpr const char* kTensorAxis = "tp";
inline constexpr const char* kHeightAxis = "h";
inline constexpr const char* kWidthAxis = "w";
inline constexpr std::array kAxes = {kPipelineAxis, kDataAxis, kTensorAxis, kHeightAxis, kWidthAxis};

}  // namespace trireme::ir
