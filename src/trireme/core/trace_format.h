#pragma once
#include <string_view>

namespace trireme {

// How every Chrome trace of ours begins: of a run, and of a simulation. A file that begins otherwise is not replaced.
inline constexpr std::string_view kTraceBeginning = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";

}  // namespace trireme
