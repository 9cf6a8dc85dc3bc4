#pragma once
#include <functional>

#include "trireme/program/program.h"
#include "trireme/runtime/trace.h"

namespace trireme::runtime {

// What a rank spent in collectives and messages.
struct CommunicationTime {
  double seconds = 0;
  double hidden = 0;  // of these, while something was computed
  double hidden_share() const { return seconds > 0 ? hidden / seconds : 0; }
};

// Read off a trace of whole runs of `program` and nothing else. `asked`: of these instructions alone.
CommunicationTime communication_time(const Trace& trace, const program::Program& program,
                                     const std::function<bool(const program::Instruction&)>& asked = {});

}  // namespace trireme::runtime
