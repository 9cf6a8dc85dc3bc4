#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/dataset.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// The type in which an op of the graph of that name reads an input, on any rank; nothing: none reads it.
std::optional<DType> input_read(const Compiled& compiled, std::string_view graph, std::string_view input);

// By input: what the ops that read it on any rank allow. Inputs that other ops change first are not among them; there
// the op fails, and names the number alone.
using IndexRanges = std::map<std::string, ir::IndexRange>;
IndexRanges index_ranges(const Compiled& compiled, std::string_view graph);

// The first integer outside of its range in a row of the inputs that a model names itself, or in those that are the
// same for all rows: "input 'kind', element 2 is 9, and must be from 0 to 4". Empty: there is none.
inline constexpr std::int64_t kWholeInputs = -1;
std::string wrong_index(const IndexRanges& ranges, const data::Batch& batch, std::int64_t row);

// `data` whose samples with such an integer fail when they are read: "sample 11: input 'kind', …", with `what` in the
// place of "sample". Where there is nothing to look at, `data` itself.
std::shared_ptr<const data::Dataset> with_checked_indices(std::shared_ptr<const data::Dataset> data, IndexRanges ranges,
                                                          const std::string& what);

}  // namespace trireme::train
