#include "trireme/core/error.h"
#include "trireme/ops/attention/attention_grad_hopper.h"
#include "trireme/ops/attention/attention_hopper.h"
#include "trireme/ops/cuda/hopper.h"
#include "trireme/ops/matmul/gated_hopper.h"

// In place of the kernels for Hopper where the build is for other GPUs alone.
namespace trireme::ops::cuda {
namespace {

[[noreturn]] void missing() { fail("this build has no kernels for Hopper: 90 is not among its architectures"); }

}  // namespace

bool runs_on_hopper() { return false; }

bool hopper_attention_fits(const device::cuda::FlashSpec&) { return false; }
std::size_t hopper_attention_grad_workspace(const device::cuda::FlashSpec&, bool) { return 0; }
void hopper_attention_grad(void*, const device::cuda::FlashSpec&, const device::cuda::Flash::Gradients&,
                           const std::int32_t*, void*) {
  missing();
}

void hopper_attention(void*, const device::cuda::FlashSpec&, const void*, const void*, const void*, const std::int32_t*,
                      void*, float*) {
  missing();
}

bool hopper_gated_fits(const GatedSpec&) { return false; }
void hopper_gated(void*, const GatedSpec&, const GatedForward&) { missing(); }
void hopper_gated_grad(void*, const GatedSpec&, const GatedGradient&) { missing(); }

}  // namespace trireme::ops::cuda
