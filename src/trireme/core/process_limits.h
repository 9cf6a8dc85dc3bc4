#pragma once
#include <cstdint>
#include <string>

namespace trireme {

// What the limits on this process alone leave it: `ulimit -v` counts the address space, `ulimit -d` what is its own of
// it, used or not.
struct ProcessLimit {
  std::uint64_t bytes = UINT64_MAX;  // that may be in use, with those that are
  std::string name;                  // "ulimit -v = 244.1 MiB"; empty: there is none
};

// The smaller, where `threads` more threads are to be started, each with its stack.
ProcessLimit process_limit(int threads);

// Where the address space is limited, threads share what they allocate from: each would take 64 MiB of it for itself.
void allocate_within_limits();

}  // namespace trireme
