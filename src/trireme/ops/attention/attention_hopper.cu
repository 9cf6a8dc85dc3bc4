#include "trireme/ops/attention/attention_hopper.cuh"
#include "trireme/ops/attention/attention_hopper.h"

namespace trireme::ops::cuda {
namespace {

using namespace attention_forward;
using device::cuda::FlashSpec;

template <class X, class T>
void run(cudaStream_t stream, const FlashSpec& spec, const Work& w) {
  TRI_CUDA(cudaFuncSetAttribute(kernel<X, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<X>)));
  kernel<X, T><<<blocks(spec.batch * spec.heads * w.blocks), kThreads, sizeof(Shared<X>), stream>>>(w);
  device::cuda::launched("attention");
}

}  // namespace

void hopper_attention(void* stream, const FlashSpec& spec, const void* q, const void* k, const void* v,
                      const std::int32_t* starts, void* o, float* lse) {
  Work w{};
  w.q = map_of(spec, q, spec.heads, spec.q);
  w.k = map_of(spec, k, spec.key_heads, spec.k);
  w.v = map_of(spec, v, spec.key_heads, spec.v);
  w.o = map_of(spec, o, spec.heads, spec.o);
  w.starts = starts;
  w.lse = lse;
  w.rows = static_cast<int>(spec.rows);
  w.heads = static_cast<int>(spec.heads);
  w.group = static_cast<int>(spec.heads / spec.key_heads);
  w.blocks = static_cast<int>(pieces(spec.rows, kRows));
  w.scale_log2 = spec.scale * kLog2e;
  const auto sized = [&]<class X>(X) {
    if (spec.dtype == DType::bf16)
      run<X, Bf16>(static_cast<cudaStream_t>(stream), spec, w);
    else
      run<X, F16>(static_cast<cudaStream_t>(stream), spec, w);
  };
  if (spec.dim <= 64)
    sized(Extents<64>{});
  else
    sized(Extents<128>{});
}

}  // namespace trireme::ops::cuda
