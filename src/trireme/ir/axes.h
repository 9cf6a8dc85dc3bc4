#pragma once
#include <array>
#include <string_view>

// The axes that a mesh may have, by name.
namespace trireme::ir {

inline constexpr const char* kPipelineAxis = "pp";
inline constexpr const char* kDataAxis = "dp";
inline constexpr const char* kTensorAxis = "tp";
inline constexpr const char* kHeightAxis = "h";
inline constexpr const char* kWidthAxis = "w";
inline constexpr std::array kAxes = {kPipelineAxis, kDataAxis, kTensorAxis, kHeightAxis, kWidthAxis};

// Whether an axis shards the heights or widths of images: in true extents, which differ by rank (ir/slice.h).
constexpr bool is_spatial(std::string_view axis) { return axis == kHeightAxis || axis == kWidthAxis; }

}  // namespace trireme::ir
