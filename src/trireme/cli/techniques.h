#pragma once
#include <string>

#include "trireme/train/trainer.h"

namespace trireme::cli {

// What makes the step another one than the plain step of its mesh, for the line `plan`: ", remat sqrt, gradients
// compressed by int8"; keys that have no effect on this mesh are not named.
std::string techniques(const train::Trainer& trainer);

}  // namespace trireme::cli
