#include "trireme/device/kernel.h"

namespace trireme::device {

const char* name_of(Kind kind) { return kind == Kind::cpu ? "CPU" : "CUDA"; }

}  // namespace trireme::device
