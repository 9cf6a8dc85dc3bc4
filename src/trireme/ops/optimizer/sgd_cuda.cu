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
  const float *p, *m;
  const void* g;
  float *new_p, *new_m;
  void* low;
  std::int64_t n;
  unsigned first_block;
  float weight_decay;
  DType grad_type, low_type;
  bool has_low, in_fours;
};

// What the tensors of a launch share.
struct Common {
  const float *lr, *clip, *finite;
  float momentum;
  int count;
};

constexpr int kMost = 256;  // tensors in a launch: as parameters of the kernel they need no copy of their own
struct Table {
  Common common;
  Entry entries[kMost];
};
static_assert(sizeof(Table) <= 32764);

struct Factors {
  float lr, clip, momentum, decay;
  bool finite;
};

// What an update reads. All of a block's passes are read before the first is written: the compiler must take it that
// the one touches the other.
template <int N, class G>
struct Values {
  Pack<float, N> p, m;
  Pack<G, N> g;
  __device__ __forceinline__ void load_from(const Entry& e, std::int64_t i) {
    p = load<N>(e.p + i);
    m = load<N>(e.m + i);
    g = load<N>(static_cast<const G*>(e.g) + i);
  }
};

template <int N, class G, class L>
__device__ __forceinline__ void update(const Entry& e, std::int64_t i, const Factors& f, Values<N, G>& v) {
  if (f.finite)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v.m.v[j] = fmaf(f.momentum, v.m.v[j], wide(v.g.v[j]) * f.clip);
      v.p.v[j] = fmaf(-f.lr, v.m.v[j], v.p.v[j] * f.decay);
    }
  store<N>(e.new_p + i, v.p);
  store<N>(e.new_m + i, v.m);
  if (!e.has_low) return;
  Pack<L, N> low;
#pragma unroll
  for (int j = 0; j < N; ++j) low.v[j] = narrow<L>(v.p.v[j]);
  store<N>(static_cast<L*>(e.low) + i, low);
}

template <class G, class L>
__device__ __forceinline__ void update_block(const Entry& e, const Factors& f) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - e.first_block) * kPerBlock;
  const std::int64_t end = begin + kPerBlock < e.n ? begin + kPerBlock : e.n;
  if (e.in_fours) {
    const auto place = [&](int pass) { return begin + (static_cast<std::int64_t>(pass) * kThreads + threadIdx.x) * 4; };
    Values<4, G> values[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (place(pass) < end) values[pass].load_from(e, place(pass));
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (place(pass) < end) update<4, G, L>(e, place(pass), f, values[pass]);
  } else {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      Values<1, G> values;
      values.load_from(e, i);
      update<1, G, L>(e, i, f, values);
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

__global__ void sgd_kernel(const __grid_constant__ Table t) {
  const Common& c = t.common;
  const Entry& e = device::cuda::entry_of_block(t.entries, c.count);
  const Factors f{*c.lr, *c.clip, c.momentum,
                  static_cast<float>(1 - static_cast<double>(*c.lr) * static_cast<double>(e.weight_decay)),
                  *c.finite != 0};
  switch (e.grad_type) {
    case DType::bf16: update_block<Bf16>(e, f); break;
    case DType::f16: update_block<F16>(e, f); break;
    default: update_block<float>(e, f); break;
  }
}

class Sgd final : public device::GroupKernel {
 public:
  explicit Sgd(const ir::KernelSpec& spec)
      : n_(spec.inputs[0].elements()),
        momentum_(static_cast<float>(spec.attributes.real("momentum"))),
        weight_decay_(static_cast<float>(spec.attributes.real("weight_decay"))),
        grad_type_(spec.inputs[1].dtype),
        has_low_(spec.outputs.size() > 2) {
    if (has_low_) low_type_ = spec.outputs[2].dtype;
  }

  void launch_group(std::span<device::GroupKernel* const> members, std::span<const device::Launch> launches) override {
    Table table{};
    unsigned blocks = 0;
    const auto flush = [&](const device::Launch& launch) {
      if (blocks > 0) sgd_kernel<<<blocks, kThreads, 0, stream_of(launch)>>>(table);
      device::cuda::launched("sgd");
      table.common.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Sgd& member = static_cast<const Sgd&>(*members[i]);
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
    return {l.in<float>(3), l.in<float>(4), l.in<float>(5), momentum_, 0};
  }
  static bool same(const Common& a, const Common& b) {
    return a.lr == b.lr && a.clip == b.clip && a.finite == b.finite && a.momentum == b.momentum;
  }
  Entry entry(const device::Launch& l) const {
    bool in_fours = n_ % 4 == 0;
    for (std::size_t i = 0; i < 3; ++i) in_fours = in_fours && aligned16(l.inputs[i]);
    for (const void* p : l.outputs) in_fours = in_fours && aligned16(p);
    return {l.in<float>(0),
            l.in<float>(2),
            l.inputs[1],
            l.out<float>(0),
            l.out<float>(1),
            has_low_ ? l.outputs[2] : nullptr,
            n_,
            0,
            weight_decay_,
            grad_type_,
            low_type_,
            has_low_,
            in_fours};
  }

  std::int64_t n_;
  float momentum_, weight_decay_;
  DType grad_type_, low_type_ = DType::f32;
  bool has_low_;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_sgd_cuda(const ir::KernelSpec& spec) { return std::make_shared<Sgd>(spec); }

}  // namespace trireme::ops
