#include "trireme/compiler/staging.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::compiler {
namespace {

// Staging that is `less` smaller than it was.
void move_down(program::Program& p, std::size_t less) {
  for (program::Buffer& b : p.buffers) {
    if (b.state == program::kStaging) b.bytes -= less;
    if (b.state == program::kNone && b.tier == 0) b.offset -= less;
  }
  p.state_bytes -= less;
  p.arena_bytes -= less;
  p.lower_bound -= less;
}

}  // namespace

Compiled with_staging(Compiled c, std::size_t bytes) {
  TRI_CHECK(bytes > 0 && bytes % program::kPage == 0, "staging of {} bytes is not whole pages", bytes);
  c.plan.staging = std::min(c.plan.staging, bytes);
  for (Role& role : c.roles) {
    role.host_staging = std::min(role.host_staging, bytes);
    const std::size_t before = role.layout.staging_bytes;
    if (before <= bytes) continue;
    const std::size_t less = before - bytes;
    role.layout.staging_bytes = bytes;
    role.layout.bytes -= less;
    role.arena_bytes -= less;
    for (program::Program& p : role.programs) move_down(p, less);
  }
  return c;
}

}  // namespace trireme::compiler
