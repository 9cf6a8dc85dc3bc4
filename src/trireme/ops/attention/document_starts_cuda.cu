#include "trireme/ops/attention/cuda_kernels.h"
#include "trireme/ops/cuda/common.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A block of threads takes a row, as many positions at a time as it has threads: a running maximum of the positions
// behind an end.
__global__ void document_starts_kernel(const std::int32_t* tokens, std::int32_t* starts, int length, std::int32_t end) {
  __shared__ int latest[kThreads];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * length;
  const int thread = static_cast<int>(threadIdx.x);
  int before = 0;
  for (int first = 0; first < length; first += kThreads) {
    const int i = first + thread;
    const bool begins = i > 0 && i < length && tokens[row + i - 1] == end;
    latest[thread] = begins ? i : 0;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      const int other = thread >= step ? latest[thread - step] : 0;
      __syncthreads();
      latest[thread] = max(latest[thread], other);
      __syncthreads();
    }
    if (i < length) starts[row + i] = max(latest[thread], before);
    before = max(before, latest[kThreads - 1]);
    __syncthreads();
  }
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_document_starts_cuda(const ir::KernelSpec& spec) {
  const std::int64_t rows = spec.inputs[0].shape[0];
  const auto length = static_cast<int>(spec.inputs[0].shape[1]);
  const auto end = static_cast<std::int32_t>(spec.attributes.integer("end"));
  return make_kernel([=](const device::Launch& launch) {
    if (rows == 0 || length == 0) return;
    document_starts_kernel<<<blocks(rows), kThreads, 0, stream_of(launch)>>>(launch.in<std::int32_t>(0),
                                                                             launch.out<std::int32_t>(0), length, end);
    device::cuda::launched("document_starts");
  });
}

}  // namespace trireme::ops
