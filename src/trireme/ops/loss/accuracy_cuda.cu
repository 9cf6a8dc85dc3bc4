#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/sum.h"
#include "trireme/ops/loss/cuda_kernels.h"

// accuracy: a warp takes a row.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kRows = kThreads / 32;  // of a block

// 1 where no logit is larger than the target's, and none before it equal.
template <class T>
__global__ void hits_kernel(const T* logits, const std::int32_t* targets, std::int64_t rows, std::int64_t vocab,
                            float* hits) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / 32;
  if (row >= rows) return;
  const T* x = logits + row * vocab;
  const std::int32_t target = targets[row];
  const bool counted = target >= 0 && target < vocab;
  bool beaten = false;
  if (counted) {
    const float own = wide(x[target]);
    for (std::int64_t i = threadIdx.x % 32; i < vocab; i += 32) {
      const float other = wide(x[i]);
      beaten = beaten || other > own || (other == own && i < target);
    }
  }
  beaten = __any_sync(0xffffffffU, beaten);
  if (threadIdx.x % 32 == 0) hits[row] = counted && !beaten ? 1.0F : 0.0F;
}

}  // namespace

std::size_t accuracy_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.inputs[1].elements()) * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_accuracy_cuda(const ir::KernelSpec& spec) {
  const std::int64_t rows = spec.inputs[1].elements(), vocab = spec.inputs[0].shape.back();
  const double scale = spec.attributes.real("scale");
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      auto* const hits = static_cast<float*>(launch.workspace);
      if (rows > 0)
        hits_kernel<T><<<blocks(pieces(rows, kRows)), kThreads, 0, stream_of(launch)>>>(
            launch.in<T>(0), launch.in<std::int32_t>(1), rows, vocab, hits);
      sum_kernel<<<1, 1024, 0, stream_of(launch)>>>(hits, rows, scale, launch.out<float>(0));
      device::cuda::launched("accuracy");
    });
  });
}

}  // namespace trireme::ops
