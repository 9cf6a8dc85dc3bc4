#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// Gives every transient buffer of the program an offset behind the persistent state. Buffers that are alive together
// never overlap. Several placement orders are tried; the smallest arena wins.
void plan_memory(Program& program);

// What is alive when the most bytes are.
struct PeakReport {
  std::size_t bytes = 0;  // the arena: what the categories and the padding sum to
  std::array<std::size_t, kCategories> categories{};
  std::size_t padding = 0;  // alignment and gaps between buffers
  std::int32_t instruction = 0;
  std::vector<BufferId> largest;  // alive at the peak, largest first
};
PeakReport peak(const Program& program);

// Live bytes (state included) during each instruction.
std::vector<std::size_t> live_bytes(const Program& program);

}  // namespace trireme::program
