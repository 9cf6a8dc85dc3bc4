#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// What holds of a program after every pass, from lowering on, and can be seen in one walk over it. Throws, naming the
// instruction, unless
//   - operands and outputs name buffers and lie inside them;
//   - what needs an op has one, and streams exist;
//   - every event is recorded once, and waited for behind the instruction that records it: no cycle of waits;
//   - launch groups are runs of launches of one op, or of copies, on one stream, and no member touches what another
//     writes, workspaces that the kernels share apart;
//   - capture regions are runs of instructions without one that needs the host, and name the events that cross their
//     ends.
// What depends on where bytes are, and on when, is `check`'s.
void verify(const Program& program);

}  // namespace trireme::program
