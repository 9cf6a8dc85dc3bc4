#include "trireme/ops/attention/attention_forward.h"

namespace trireme::ops {
namespace {

template <class T>
class AttentionKernel : public device::Kernel {
 public:
  explicit AttentionKernel(const AttentionShape& shape) : s_(shape) {}

  void launch(const device::Launch& launch) override {
    const auto part = [&](std::int64_t i) {
      return s_.packed ? packed_part(launch.in<T>(0), i, s_.queries, s_.heads, s_.dim)
                       : heads_of(launch.in<T>(static_cast<std::size_t>(i)), i == 0 ? s_.queries : s_.keys,
                                  i == 0 ? s_.heads : s_.key_heads, s_.dim);
    };
    attend::Forward<T>(s_).run(*launch.pool, launch.workspace, part(0), part(1), part(2),
                               heads_of(launch.out<T>(0), s_.queries, s_.heads, s_.dim), launch.out<float>(1),
                               starts_in(launch, kStarts));
  }

 private:
  AttentionShape s_;
};

}  // namespace

std::size_t attention_workspace_cpu(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return static_cast<std::size_t>(spec.threads) * attend::ForwardBuffers(nullptr, attend::padded_max(s.dim)).floats *
         sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_attention_cpu(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<AttentionKernel<decltype(zero)>>(s);
  });
}

}  // namespace trireme::ops
