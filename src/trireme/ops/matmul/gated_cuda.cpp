#include <mutex>
#include <vector>

#include "trireme/ops/cuda/hopper.h"
#include "trireme/ops/elementwise/cuda_kernels.h"
#include "trireme/ops/matmul/cuda_kernels.h"
#include "trireme/ops/matmul/gated.h"
#include "trireme/ops/matmul/gated_hopper.h"
#include "trireme/ops/matmul/problem.h"

// Gated products in one kernel where the GPU is a Hopper and the sizes fit; else by the kernels of their parts. What is
// planned serves every GPU.
namespace trireme::ops {
namespace {

constexpr GatedParts kParts{prepare_matmul_cuda, prepare_swiglu_cuda, prepare_swiglu_grad_cuda, matmul_workspace_cuda};

// Whether this GPU has a kernel that does it in one; `trans_b` is how that wants the weight stored.
bool in_one(const ir::KernelSpec& spec, bool trans_b, cuda::GatedSpec& sizes) {
  const MatmulProblem p = matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes);
  sizes = {p.m, p.n, p.k, spec.inputs[0].dtype};
  return !p.trans_a && p.trans_b == trans_b && cuda::hopper_gated_fits(sizes) && cuda::runs_on_hopper();
}

bool is_aligned(const device::Launch& l) {
  constexpr std::uintptr_t kBytes = 16;
  for (const void* p : l.inputs)
    if (reinterpret_cast<std::uintptr_t>(p) % kBytes != 0) return false;
  for (const void* p : l.outputs)
    if (reinterpret_cast<std::uintptr_t>(p) % kBytes != 0) return false;
  return true;
}

// In one kernel, or by its parts where operands do not lie at multiples of 16 bytes; those are prepared when that
// happens first, since preparing a product measures algorithms.
template <class InOne>
std::shared_ptr<device::Kernel> in_one_or_parts(
    const ir::KernelSpec& spec, InOne run,
    std::shared_ptr<device::Kernel> (GatedParts::*parts)(const ir::KernelSpec&) const) {
  struct Kept {
    std::vector<TensorType> inputs, outputs;
    ir::Attributes attributes;
    int threads;
    device::Algorithms* algorithms;
    std::once_flag once;
    std::shared_ptr<device::Kernel> kernel;
  };
  const auto kept = std::make_shared<Kept>();
  kept->inputs.assign(spec.inputs.begin(), spec.inputs.end());
  kept->outputs.assign(spec.outputs.begin(), spec.outputs.end());
  kept->attributes = spec.attributes;
  kept->threads = spec.threads;
  kept->algorithms = spec.algorithms;
  return make_kernel([kept, run, parts](const device::Launch& l) {
    if (is_aligned(l)) return run(l);
    std::call_once(kept->once, [&] {
      kept->kernel =
          (kParts.*parts)({kept->inputs, kept->outputs, kept->attributes, kept->threads, false, kept->algorithms});
    });
    kept->kernel->launch(l);
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_gated_linear_cuda(const ir::KernelSpec& spec) {
  cuda::GatedSpec sizes;
  if (!in_one(spec, true, sizes)) return kParts.linear(spec);
  const auto run = [sizes](const device::Launch& l) {
    cuda::hopper_gated(l.native_stream, sizes,
                       {l.inputs[0], l.inputs[1], l.inputs[2], l.outputs[0], l.outputs[1], l.outputs[2]});
  };
  return in_one_or_parts(spec, run, &GatedParts::linear);
}

std::shared_ptr<device::Kernel> prepare_gated_linear_grad_cuda(const ir::KernelSpec& spec) {
  cuda::GatedSpec sizes;
  if (!in_one(spec, false, sizes)) return kParts.gradient(spec);
  const auto run = [sizes](const device::Launch& l) {
    cuda::hopper_gated_grad(l.native_stream, sizes,
                            {l.inputs[0], l.inputs[1], l.inputs[2], l.inputs[3], l.outputs[0], l.outputs[1]});
  };
  return in_one_or_parts(spec, run, &GatedParts::gradient);
}

std::size_t gated_linear_workspace_cuda(const ir::KernelSpec& spec) { return kParts.linear_workspace(spec); }
std::size_t gated_linear_grad_workspace_cuda(const ir::KernelSpec& spec) { return kParts.gradient_workspace(spec); }

}  // namespace trireme::ops
