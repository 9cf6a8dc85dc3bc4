#include "trireme/ops/cuda/common.h"
#include "trireme/ops/quantize/cuda_kernels.h"
#include "trireme/ops/quantize/round_to_codes.h"

// A warp takes the elements that share a scale; the arithmetic is that of codes.cpp, and so are the bits.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kGroupWarps = 8;

template <int Bits>
__global__ void round_to_codes_kernel(const float* x, float* y, std::int64_t groups, std::int64_t group) {
  const std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * kGroupWarps + threadIdx.x / 32;
  if (g >= groups) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  x += g * group;
  y += g * group;
  // The first of the largest magnitudes.
  float most = 0;
  std::int64_t place = group;
  for (std::int64_t i = lane; i < group; i += 32)
    if (fabsf(x[i]) > most) {
      most = fabsf(x[i]);
      place = i;
    }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, most, offset);
    const std::int64_t there = __shfl_xor_sync(0xffffffffU, place, offset);
    if (other > most || (other == most && there < place)) {
      most = other;
      place = there;
    }
  }
  const float extreme = place < group ? x[place] : 0.0F;
  const float scale = Bits == 8 ? fabsf(extreme) / 127.0F : extreme / -8.0F;
  __syncwarp();  // y may be x
  constexpr float kLowest = Bits == 8 ? -127.0F : -8.0F, kHighest = Bits == 8 ? 127.0F : 7.0F;
  for (std::int64_t i = lane; i < group; i += 32) {
    float code = scale == 0 ? 0.0F : rintf(x[i] / scale);
    if (code < kLowest) code = kLowest;
    if (code > kHighest) code = kHighest;
    y[i] = (code + 0.0F) * scale;  // a code has no negative zero
  }
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_round_to_codes_cuda(const ir::KernelSpec& spec) {
  const CodeFormat format = code_format(spec.attributes);
  const Shape& shape = spec.inputs[0].shape;
  const std::int64_t given = spec.attributes.integer("split");
  const int split = given == -1 ? shape.rank() - 1 : static_cast<int>(given);
  const std::int64_t group = format.group_of(shape.slice(split, shape.rank()).elements());
  return make_kernel([=, groups = spec.inputs[0].elements() / group](const device::Launch& launch) {
    if (groups == 0) return;
    const auto kernel = format.bits == 8 ? round_to_codes_kernel<8> : round_to_codes_kernel<4>;
    kernel<<<blocks(pieces(groups, kGroupWarps)), 32 * kGroupWarps, 0, stream_of(launch)>>>(
        launch.in<float>(0), launch.out<float>(0), groups, group);
    device::cuda::launched("round_to_codes");
  });
}

}  // namespace trireme::ops
