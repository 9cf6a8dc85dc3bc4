#include "trireme/device/stream.h"

#include "trireme/device/cpu/stream.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::device {

std::unique_ptr<Streams> make_streams(Kind kind, const StreamShape& shape) {
  return kind == Kind::cpu ? cpu::make_streams(shape) : cuda::make_streams(shape);
}

}  // namespace trireme::device
