#include <algorithm>

#include "trireme/device/cuda/flash.h"
#include "trireme/ops/attention/attention_grad_hopper.h"
#include "trireme/ops/attention/attention_hopper.h"
#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/attention/cuda_kernels.h"
#include "trireme/ops/cuda/hopper.h"
#include "trireme/ops/define.h"

// Attention by cuDNN where it can, else by kernels for any sizes; its gradient by that for Hopper where it fits. cuDNN
// knows no documents.
namespace trireme::ops {
namespace {

using device::cuda::Flash;
using device::cuda::FlashSpec;

// cuDNN takes the gradient for as many rows of the batch at a time as what it keeps meanwhile allows.
constexpr std::size_t kMaxScratch = std::size_t{1} << 30;

struct Plan {
  AttentionShape shape;
  FlashSpec flash;
  FlashSpec slice;  // of the batch, for the gradient
  bool documents;

  // `starts`: which operand that is.
  Plan(const ir::KernelSpec& spec, std::size_t starts)
      : shape(attention_shape(spec.inputs, spec.attributes)), documents(given(spec.inputs, starts)) {
    const AttentionShape& s = shape;
    flash = {.batch = s.batch,
             .rows = s.queries,
             .heads = s.heads,
             .key_heads = s.key_heads,
             .dim = s.dim,
             .causal = s.causal,
             .scale = s.scale,
             .dtype = spec.inputs[0].dtype};
    const auto strides = [&](std::int64_t heads) {
      return std::array<std::int64_t, 3>{s.queries * heads * s.dim, heads * s.dim, s.dim};
    };
    flash.o = strides(s.heads);
    flash.q = strides(s.packed ? 3 * s.heads : s.heads);
    flash.k = flash.v = s.packed ? flash.q : strides(s.key_heads);
    // What is planned serves every GPU: where our own kernel will run on some, others do with little more than it
    // needs.
    FlashSpec one = flash;
    one.batch = std::min<std::int64_t>(1, s.batch);
    const std::size_t least = Flash::backward_workspace(one);
    const std::size_t room = own_fits() ? std::max(least, own_workspace()) : kMaxScratch;
    slice = flash;
    while (slice.batch > 1 && (s.batch % slice.batch != 0 || Flash::backward_workspace(slice) > room)) --slice.batch;
  }
  bool fits() const { return !documents && shape.keys == shape.queries && flash.fits(); }
  // A single long sequence may need more scratch than is worth it.
  bool gradient_fits() const { return fits() && Flash::backward_workspace(slice) <= 2 * kMaxScratch; }
  bool own_fits() const { return shape.keys == shape.queries && cuda::hopper_attention_fits(flash); }
  std::size_t own_workspace() const { return cuda::hopper_attention_grad_workspace(flash, documents); }
  std::size_t gradient_workspace() const {
    return std::max(gradient_fits() ? Flash::backward_workspace(slice) : 0, own_fits() ? own_workspace() : 0);
  }

  Flash::Gradients gradients(const device::Launch& l) const {
    const void* const q = l.inputs[0];
    Flash::Gradients g{q,       l.inputs[1], l.inputs[2], l.inputs[3], l.inputs[5], l.in<float>(4), l.outputs[0],
                       nullptr, nullptr};
    if (shape.packed) {
      g.k = part(q, 1);
      g.v = part(q, 2);
      g.dk = part(l.outputs[0], 1);
      g.dv = part(l.outputs[0], 2);
    } else {
      g.dk = l.outputs[1];
      g.dv = l.outputs[2];
    }
    return g;
  }

  void next_slice(Flash::Gradients& g) const {
    const auto on = [&](auto*& p, std::int64_t stride) {
      using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(p)>>>,
                                      const std::byte, std::byte>;
      p = static_cast<Byte*>(p) + static_cast<std::size_t>(slice.batch * stride) * size_of(flash.dtype);
    };
    on(g.q, flash.q[0]);
    on(g.dq, flash.q[0]);
    on(g.k, flash.k[0]);
    on(g.dk, flash.k[0]);
    on(g.v, flash.v[0]);
    on(g.dv, flash.v[0]);
    on(g.o, flash.o[0]);
    on(g.d, flash.o[0]);
    g.lse += slice.batch * flash.heads * flash.rows;
  }

  // Part 0, 1 or 2 of q, k, v, or of their gradients.
  template <class T>
  T* part(T* packed, std::size_t i) const {
    const std::size_t bytes = i * static_cast<std::size_t>(shape.heads * shape.dim) * size_of(flash.dtype);
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Byte*>(packed) + bytes;
  }
};

}  // namespace

std::size_t attention_workspace_cuda(const ir::KernelSpec& spec) {
  const Plan plan(spec, kStarts);
  return plan.fits() ? Flash::forward_workspace(plan.flash) : 0;
}

std::shared_ptr<device::Kernel> prepare_attention_cuda(const ir::KernelSpec& spec) {
  const Plan plan(spec, kStarts);
  if (plan.documents && plan.own_fits() && cuda::runs_on_hopper())
    return make_kernel([plan](const device::Launch& l) {
      const bool packed = plan.shape.packed;
      const void* const q = l.inputs[0];
      cuda::hopper_attention(l.native_stream, plan.flash, q, packed ? plan.part(q, 1) : l.inputs[1],
                             packed ? plan.part(q, 2) : l.inputs[2], starts_in(l, kStarts), l.outputs[0],
                             l.out<float>(1));
    });
  std::shared_ptr<Flash> flash;
  if (plan.fits()) flash = Flash::make_forward(plan.flash, attention_workspace_cuda(spec));
  if (!flash) return prepare_plain_attention_cuda(spec);
  return make_kernel([plan, flash](const device::Launch& l) {
    const bool packed = plan.shape.packed;
    const void* const q = l.inputs[0];
    flash->forward(l.native_stream, q, packed ? plan.part(q, 1) : l.inputs[1], packed ? plan.part(q, 2) : l.inputs[2],
                   l.outputs[0], l.out<float>(1), l.workspace);
  });
}

std::size_t attention_grad_workspace_cuda(const ir::KernelSpec& spec) {
  return std::max(plain_attention_grad_workspace_cuda(spec), Plan(spec, kStartsOfGrad).gradient_workspace());
}

std::shared_ptr<device::Kernel> prepare_attention_grad_cuda(const ir::KernelSpec& spec) {
  const Plan plan(spec, kStartsOfGrad);
  if (plan.own_fits() && cuda::runs_on_hopper())
    return make_kernel([plan](const device::Launch& l) {
      cuda::hopper_attention_grad(l.native_stream, plan.flash, plan.gradients(l), starts_in(l, kStartsOfGrad),
                                  l.workspace);
    });
  std::shared_ptr<Flash> flash;
  if (plan.gradient_fits()) flash = Flash::make_backward(plan.slice, attention_grad_workspace_cuda(spec));
  if (!flash) return prepare_plain_attention_grad_cuda(spec);
  return make_kernel([plan, flash](const device::Launch& l) {
    Flash::Gradients g = plan.gradients(l);
    for (std::int64_t b = 0; b < plan.flash.batch; b += plan.slice.batch) {
      flash->backward(l.native_stream, g, l.workspace);
      plan.next_slice(g);
    }
  });
}

}  // namespace trireme::ops
