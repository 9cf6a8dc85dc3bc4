#include "trireme/device/cuda/flash.h"

#include <unordered_map>

#include "trireme/device/cuda/cudnn.h"

namespace trireme::device::cuda {
namespace {

using Attributes = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Attributes>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

}  // namespace

struct Flash::Impl {
  fe::graph::Graph graph;
  FlashSpec s;

  explicit Impl(const FlashSpec& spec) : s(spec) {
    graph.set_io_data_type(spec.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Attributes shaped(Uid uid, std::int64_t heads, const std::array<std::int64_t, 3>& strides) const {
    return Attributes()
        .set_uid(uid)
        .set_dim({s.batch, heads, s.rows, s.dim})
        .set_stride({strides[0], strides[2], strides[1], 1});
  }
  Attributes statistics() const {
    return Attributes()
        .set_uid(kLse)
        .set_dim({s.batch, s.heads, s.rows, 1})
        .set_stride({s.heads * s.rows, s.rows, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
  void output(const Tensor& tensor, const Attributes& as) const {
    tensor->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
  }

  // Whether the library can, within the allowance.
  bool build(std::size_t allowance) {
    if (graph.validate().is_bad() || graph.build_operation_graph(cudnn_handle()).is_bad() ||
        graph.create_execution_plans({fe::HeurMode_t::A}).is_bad() || graph.check_support().is_bad() ||
        graph.build_plans().is_bad())
      return false;
    std::int64_t bytes = 0;
    return graph.get_workspace_size(bytes).is_good() && static_cast<std::size_t>(bytes) + kCudnnAlignment <= allowance;
  }

  void execute(void* stream, std::unordered_map<std::int64_t, void*> tensors, void* workspace) const {
    fe_check(graph.execute(cudnn_handle(stream), tensors, cudnn_scratch(workspace)), "cuDNN's attention");
  }
};

bool FlashSpec::fits() const {
  return size_of(dtype) == 2 && dim % 8 == 0 && dim <= 256 && rows >= 64 && rows % 64 == 0 && batch > 0;
}

std::size_t Flash::forward_workspace(const FlashSpec&) { return std::size_t{1} << 20; }

// The deterministic algorithm keeps the gradients of the scores, in 16 bits; the rest is for sums of dq, for numbers
// per row and, with grouped heads, for dk and dv of every head.
std::size_t Flash::backward_workspace(const FlashSpec& s) {
  const auto up = [](std::int64_t n, std::int64_t unit) {
    return static_cast<std::size_t>((n + unit - 1) / unit * unit);
  };
  const auto heads = static_cast<std::size_t>(s.batch * s.heads);
  const std::size_t scores = heads * up(s.rows, 128) * up(s.rows, 128) * 2;
  const std::size_t sums = heads * up(s.rows, 128) * up(s.dim, 64) * sizeof(float);
  const std::size_t grouped = s.heads != s.key_heads ? 2 * sums : 0;
  return scores + sums + grouped + 4 * heads * up(s.rows, 128) * sizeof(float) + (std::size_t{4} << 20);
}

Flash::Flash() = default;
Flash::~Flash() = default;

std::unique_ptr<Flash> Flash::make_forward(const FlashSpec& s, std::size_t allowance) {
  if (cudnn_handle() == nullptr) return nullptr;
  auto impl = std::make_unique<Impl>(s);
  const Tensor q = impl->graph.tensor(impl->shaped(kQ, s.heads, s.q));
  const Tensor k = impl->graph.tensor(impl->shaped(kK, s.key_heads, s.k));
  const Tensor v = impl->graph.tensor(impl->shaped(kV, s.key_heads, s.v));
  auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(s.scale);
  if (s.causal) options.set_causal_mask(true);
  const auto [o, lse] = impl->graph.sdpa(q, k, v, options);
  impl->output(o, impl->shaped(kO, s.heads, s.o));
  impl->output(lse, impl->statistics());
  lse->set_data_type(fe::DataType_t::FLOAT);
  if (!impl->build(allowance)) return nullptr;
  std::unique_ptr<Flash> flash(new Flash);
  flash->impl_ = std::move(impl);
  return flash;
}

std::unique_ptr<Flash> Flash::make_backward(const FlashSpec& s, std::size_t allowance) {
  if (cudnn_handle() == nullptr) return nullptr;
  auto impl = std::make_unique<Impl>(s);
  const Tensor q = impl->graph.tensor(impl->shaped(kQ, s.heads, s.q));
  const Tensor k = impl->graph.tensor(impl->shaped(kK, s.key_heads, s.k));
  const Tensor v = impl->graph.tensor(impl->shaped(kV, s.key_heads, s.v));
  const Tensor o = impl->graph.tensor(impl->shaped(kO, s.heads, s.o));
  const Tensor d = impl->graph.tensor(impl->shaped(kDo, s.heads, s.o));
  const Tensor lse = impl->graph.tensor(impl->statistics());
  auto options = fe::graph::SDPA_backward_attributes().set_attn_scale(s.scale).set_deterministic_algorithm(true);
  if (s.causal) options.set_causal_mask(true);
  const auto [dq, dk, dv] = impl->graph.sdpa_backward(q, k, v, o, d, lse, options);
  impl->output(dq, impl->shaped(kDq, s.heads, s.q));
  impl->output(dk, impl->shaped(kDk, s.key_heads, s.k));
  impl->output(dv, impl->shaped(kDv, s.key_heads, s.v));
  if (!impl->build(allowance)) return nullptr;
  std::unique_ptr<Flash> flash(new Flash);
  flash->impl_ = std::move(impl);
  return flash;
}

void Flash::forward(void* stream, const void* q, const void* k, const void* v, void* o, float* lse,
                    void* workspace) const {
  const auto in = [](const void* p) { return const_cast<void*>(p); };
  impl_->execute(stream, {{kQ, in(q)}, {kK, in(k)}, {kV, in(v)}, {kO, o}, {kLse, lse}}, workspace);
}

void Flash::backward(void* stream, const Gradients& g, void* workspace) const {
  const auto in = [](const void* p) { return const_cast<void*>(p); };
  impl_->execute(stream,
                 {{kQ, in(g.q)},
                  {kK, in(g.k)},
                  {kV, in(g.v)},
                  {kO, in(g.o)},
                  {kDo, in(g.d)},
                  {kLse, in(g.lse)},
                  {kDq, g.dq},
                  {kDk, g.dk},
                  {kDv, g.dv}},
                 workspace);
}

}  // namespace trireme::device::cuda
