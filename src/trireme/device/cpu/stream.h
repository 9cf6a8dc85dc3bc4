#pragma once
#include "trireme/device/stream.h"

namespace trireme::device::cpu {

std::unique_ptr<Streams> make_streams(const StreamShape& shape);

}  // namespace trireme::device::cpu
