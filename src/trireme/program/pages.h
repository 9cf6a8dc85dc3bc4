#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Rounds the size of every buffer that copies between tiers touch up to whole pages, which is what they move.
void round_to_pages(Program& program);

}  // namespace trireme::program
