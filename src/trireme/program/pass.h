#pragma once
#include <span>

#include "trireme/program/program.h"

namespace trireme::program {

struct LowerOptions;

// One rewrite of a program, or of what a program says of itself. What a pass leaves for a later one is in the program.
// To add one, write its file and an entry in the list in pipeline.cpp.
struct Pass {
  const char* name;
  const char* reason;  // why it stands where it stands in the list
  void (*run)(Program& program, const LowerOptions& options);
};

// All of them, in the order in which they run.
std::span<const Pass> program_passes();

// Runs them over a program that lowering has just emitted. The one place through which every pass runs: it verifies the
// program after each (verify.h), checks all of it once memory is planned if that is asked for (check.h), times each
// pass, and writes the program out after each when asked.
void run_passes(Program& program, const LowerOptions& options, std::span<const Pass> passes = program_passes());

}  // namespace trireme::program
