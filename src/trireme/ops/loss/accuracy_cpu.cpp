#include "trireme/ops/loss/accuracy.h"
#include "trireme/ops/loss/loss_cpu.h"

namespace trireme::ops {
namespace {

LossChunks chunks_of(const ir::KernelSpec& spec) { return {spec.inputs[1].elements(), spec.inputs[0].shape.back()}; }

}  // namespace

std::size_t accuracy_workspace_cpu(const ir::KernelSpec& spec) { return chunks_of(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_accuracy_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), vocab = spec.inputs[0].shape.back(),
                        scale = spec.attributes.real("scale")](const device::Launch& launch) {
      const auto* targets = launch.in<std::int32_t>(1);
      chunks.sum(launch, scale, launch.out<float>(0), [&](std::int64_t row) {
        if (!counts(targets[row], vocab, row)) return 0.0;
        const T* x = launch.in<T>(0) + row * vocab;
        std::int64_t largest = 0;
        for (std::int64_t i = 1; i < vocab; ++i)
          if (static_cast<float>(x[i]) > static_cast<float>(x[largest])) largest = i;
        return largest == targets[row] ? 1.0 : 0.0;
      });
    });
  });
}

}  // namespace trireme::ops
