#pragma once
#include <optional>
#include <string_view>

#include "trireme/train/compile.h"

namespace trireme::train {

// The type in which an op of the graph of that name reads an input, on any rank; nothing: none reads it.
std::optional<DType> input_read(const Compiled& compiled, std::string_view graph, std::string_view input);

}  // namespace trireme::train
