#pragma once
#include <string_view>

#include "trireme/ir/op_def.h"

// Values that several ranks hold together: combining what each has along one mesh axis. `parts` is the number of ranks
// there. A tensor is cut in equal parts along its first dimension; where that does not divide, the last parts reach
// beyond its end, and hold zeros there.
namespace trireme::ops {

inline constexpr std::string_view kAllReduce = "all_reduce";
inline constexpr std::string_view kReduceScatter = "reduce_scatter";
inline constexpr std::string_view kAllGather = "all_gather";
inline constexpr std::string_view kOwnRows = "own_rows";
inline constexpr std::string_view kAllToAll = "all_to_all";

// all_reduce(xs…) axis="dp" parts=1 reduce="sum" → for each x, the sum (or "max") of what the ranks hold. In place.
ir::OpDef all_reduce_def();
// reduce_scatter(xs…) axis parts → for each x, the own part of the sum of what the ranks hold.
ir::OpDef reduce_scatter_def();
// all_gather(xs…) axis parts rows=[…] → for each x, which is an own part, the whole: rows[i] rows.
ir::OpDef all_gather_def();
// all_to_all(xs…) axis parts → for each x, whose first dimension is `parts`: row r of what comes is the own row of what
// rank r has.
ir::OpDef all_to_all_def();
// own_rows(x) axis parts → the own part of what every rank has whole. A view; its storage must have room for all parts.
ir::OpDef own_rows_def();

// Rows of one part.
std::int64_t part_rows(std::int64_t rows, std::int64_t parts);

}  // namespace trireme::ops
