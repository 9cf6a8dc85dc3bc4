#include "trireme/device/cuda/block_table.cuh"
#include "trireme/device/group_kernel.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kPasses = 4;  // of a block over its elements
constexpr std::int64_t kPerBlock = std::int64_t{kThreads} * 4 * kPasses;

// One tensor's update. Types are known when it runs: a block has one tensor.
struct Entry {
  const float *p, *m, *v;
  const void* g;
  float *new_p, *new_m, *new_v;
  void* low;
  std::int64_t n;
  unsigned first_block;
  float weight_decay;
  DType grad_type, low_type;
  bool has_low, in_fours;
};

// What the tensors of a launch share.
struct Common {
  const float *lr, *step, *clip, *finite;
  double beta1, beta2;
  float eps;
  int count;
};

constexpr int kMost = 256;  // tensors in a launch: as parameters of the kernel they need no copy of their own
struct Table {
  Common common;
  Entry entries[kMost];
};
static_assert(sizeof(Table) <= 32764);

struct Factors {
  float clip, rate, root, eps, beta1, take1, beta2, take2, decay;
  bool finite;
};

// What an update reads. Two of them are read before the first is written: the compiler must take it that the one
// touches the other.
template <int N, class G>
struct Values {
  Pack<float, N> p, m, v;
  Pack<G, N> g;
  __device__ __forceinline__ void fetch(const Entry& e, std::int64_t i) {
    p = load<N>(e.p + i);
    m = load<N>(e.m + i);
    v = load<N>(e.v + i);
    g = load<N>(static_cast<const G*>(e.g) + i);
  }
};

template <int N, class G, class L>
__device__ __forceinline__ void update(const Entry& e, std::int64_t i, const Factors& f, Values<N, G>& values) {
  auto& [p, m, v, g] = values;
  if (f.finite) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float grad = wide(g.v[j]) * f.clip;
      m.v[j] = fmaf(f.take1, grad, f.beta1 * m.v[j]);
      v.v[j] = fmaf(f.take2 * grad, grad, f.beta2 * v.v[j]);
      p.v[j] = fmaf(-f.rate, m.v[j] / fmaf(sqrtf(v.v[j]), f.root, f.eps), p.v[j] * f.decay);
    }
  }
  store<N>(e.new_p + i, p);
  store<N>(e.new_m + i, m);
  store<N>(e.new_v + i, v);
  if (!e.has_low) return;
  Pack<L, N> low;
#pragma unroll
  for (int j = 0; j < N; ++j) low.v[j] = narrow<L>(p.v[j]);
  store<N>(static_cast<L*>(e.low) + i, low);
}

template <class G, class L>
__device__ __forceinline__ void update_block(const Entry& e, const Factors& f) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - e.first_block) * kPerBlock;
  const std::int64_t end = begin + kPerBlock < e.n ? begin + kPerBlock : e.n;
  if (e.in_fours) {
    static_assert(kPasses % 2 == 0);
#pragma unroll
    for (int pass = 0; pass < kPasses; pass += 2) {
      const std::int64_t first = begin + (static_cast<std::int64_t>(pass) * kThreads + threadIdx.x) * 4;
      const std::int64_t second = first + kThreads * 4;
      Values<4, G> a, b;
      if (first < end) a.fetch(e, first);
      if (second < end) b.fetch(e, second);
      if (first < end) update<4, G, L>(e, first, f, a);
      if (second < end) update<4, G, L>(e, second, f, b);
    }
  } else {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      Values<1, G> a;
      a.fetch(e, i);
      update<1, G, L>(e, i, f, a);
    }
  }
}

template <class G>
__device__ __forceinline__ void update_block(const Entry& e, const Factors& f) {
  switch (e.low_type) {
    case DType::bf16: return update_block<G, Bf16>(e, f);
    case DType::f16: return update_block<G, F16>(e, f);
    default: return update_block<G, float>(e, f);
  }
}

__global__ void adamw_kernel(const __grid_constant__ Table t) {
  // The powers are the same for every thread: one computes them.
  __shared__ float rate, root;
  const Common& c = t.common;
  if (threadIdx.x == 0) {
    rate = static_cast<float>(static_cast<double>(*c.lr) / (1 - pow(c.beta1, static_cast<double>(*c.step))));
    root = static_cast<float>(1 / sqrt(1 - pow(c.beta2, static_cast<double>(*c.step))));
  }
  const Entry& e = device::cuda::entry_of_block(t.entries, c.count);
  __syncthreads();
  const Factors f{*c.clip,
                  rate,
                  root,
                  c.eps,
                  static_cast<float>(c.beta1),
                  static_cast<float>(1 - c.beta1),
                  static_cast<float>(c.beta2),
                  static_cast<float>(1 - c.beta2),
                  static_cast<float>(1 - static_cast<double>(*c.lr) * static_cast<double>(e.weight_decay)),
                  *c.finite != 0};
  switch (e.grad_type) {
    case DType::bf16: update_block<Bf16>(e, f); break;
    case DType::f16: update_block<F16>(e, f); break;
    default: update_block<float>(e, f); break;
  }
}

class AdamW final : public device::GroupKernel {
 public:
  explicit AdamW(const ir::KernelSpec& spec)
      : n_(spec.inputs[0].elements()),
        beta1_(spec.attributes.real("beta1")),
        beta2_(spec.attributes.real("beta2")),
        eps_(static_cast<float>(spec.attributes.real("eps"))),
        weight_decay_(static_cast<float>(spec.attributes.real("weight_decay"))),
        grad_type_(spec.inputs[1].dtype),
        has_low_(spec.outputs.size() > 3) {
    if (has_low_) low_type_ = spec.outputs[3].dtype;
  }

  void launch_group(std::span<device::GroupKernel* const> members, std::span<const device::Launch> launches) override {
    Table table{};
    unsigned blocks = 0;
    const auto flush = [&](const device::Launch& launch) {
      if (blocks > 0) adamw_kernel<<<blocks, kThreads, 0, stream_of(launch)>>>(table);
      device::cuda::launched("adamw");
      table.common.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < members.size(); ++i) {
      const AdamW& member = static_cast<const AdamW&>(*members[i]);
      if (member.n_ == 0) continue;
      Common common = member.common(launches[i]);
      if (table.common.count == kMost || (table.common.count > 0 && !same(table.common, common))) flush(launches[i]);
      common.count = table.common.count + 1;
      table.common = common;
      Entry& e = table.entries[common.count - 1];
      e = member.entry(launches[i]);
      e.first_block = blocks;
      blocks += static_cast<unsigned>(pieces(member.n_, kPerBlock));
    }
    flush(launches.front());
  }

 private:
  Common common(const device::Launch& l) const {
    return {l.in<float>(4), l.in<float>(5), l.in<float>(6), l.in<float>(7), beta1_, beta2_, eps_, 0};
  }
  static bool same(const Common& a, const Common& b) {
    return a.lr == b.lr && a.step == b.step && a.clip == b.clip && a.finite == b.finite && a.beta1 == b.beta1 &&
           a.beta2 == b.beta2 && a.eps == b.eps;
  }
  Entry entry(const device::Launch& l) const {
    bool in_fours = n_ % 4 == 0;
    for (std::size_t i = 0; i < 4; ++i) in_fours = in_fours && aligned16(l.inputs[i]);
    for (const void* p : l.outputs) in_fours = in_fours && aligned16(p);
    return {l.in<float>(0),
            l.in<float>(2),
            l.in<float>(3),
            l.inputs[1],
            l.out<float>(0),
            l.out<float>(1),
            l.out<float>(2),
            has_low_ ? l.outputs[3] : nullptr,
            n_,
            0,
            weight_decay_,
            grad_type_,
            low_type_,
            has_low_,
            in_fours};
  }

  std::int64_t n_;
  double beta1_, beta2_;
  float eps_, weight_decay_;
  DType grad_type_, low_type_ = DType::f32;
  bool has_low_;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_adamw_cuda(const ir::KernelSpec& spec) { return std::make_shared<AdamW>(spec); }

}  // namespace trireme::ops
