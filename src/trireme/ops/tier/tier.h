#pragma once
#include <cstddef>
#include <string_view>

#include "trireme/ir/graph.h"

// Values in other memory tiers than the device's own, and values made in pieces.
namespace trireme::ops {

inline constexpr std::string_view kStore = "store";
inline constexpr std::string_view kLoad = "load";
inline constexpr std::string_view kRows = "rows";
inline constexpr std::string_view kAssemble = "assemble";

// store(x) tier=2 → x's bytes in a memory tier (1 host, 2 disk). Only `load` and `rows` read such a value, or a write
// to a state of that tier.
ir::OpDef store_def();
// load(x) → x, a value or state of another tier, in the device's memory.
ir::OpDef load_def();
// rows(x) start end → rows [start, end) of x's first dimension. A view, in whatever tier x is.
ir::OpDef rows_def();
// assemble(pieces…) → the pieces one after another along the first dimension. Nothing is copied: each piece is made in
// its place, in the state whose new contents the result is, or in the result's own buffer.
ir::OpDef assemble_def();

// Where the rows of a `rows` node begin in x, in bytes.
std::size_t rows_offset(const ir::Node& node, const TensorType& x);

}  // namespace trireme::ops
