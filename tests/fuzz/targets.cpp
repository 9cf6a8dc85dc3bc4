#include "fuzz/targets.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::fuzz {

void fail_if(bool wrong, const char* what) {
  if (!wrong) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

void run_input(void (*target)(Input), Input input) {
  // A copy of exactly its size, so that a read beyond its end is one beyond an allocation.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  try {
    target(copy);
  } catch (const Error&) {  // in the fuzzers a failed check of ours ends the program where it stands (core/error.cpp)
  }
}

}  // namespace trireme::fuzz
