#include "trireme/program/pages.h"

namespace trireme::program {

void round_to_pages(Program& program) {
  for (Buffer& b : program.buffers)
    if (b.alignment == kPage) b.bytes = aligned(b.bytes, kPage);
}

}  // namespace trireme::program
