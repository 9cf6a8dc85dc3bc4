#pragma once
#include "trireme/device/cuda/block_table.cuh"
#include "trireme/device/group_kernel.h"
#include "trireme/ops/cuda/common.h"

// Updates of many tensors in few launches, whatever the rule. A rule says
//
//   kStates        how many states a parameter has
//   kAtOnce        how many of a block's passes are read before the first is written: the compiler must take it that
//                  the one touches the other, and registers set the limit
//   kName          for errors
//   Common         what the tensors of a launch share, to be compared
//   common(l, s)   that of a launch whose scalars begin at input s, from the attributes it was made of
//   Factors        what a thread needs of it for a tensor of some weight decay, made by `factors(common, decay)`
//   step(f, x, g)  x[0], the parameter, and x[1…], its states, after gradient g
//
// Operands of the op: parameter, gradient, states…, scalars…, and perhaps what to keep; results: parameter, states…,
// and if asked for the parameter in low precision.
namespace trireme::ops::cuda {

constexpr int kUpdateThreads = 256;
constexpr int kUpdatePasses = 4;  // of a block over its elements
constexpr std::int64_t kUpdatedPerBlock = std::int64_t{kUpdateThreads} * 4 * kUpdatePasses;

// One tensor's update. Types are known when it runs: a block has one tensor.
template <class Rule>
struct UpdateEntry {
  const float* from[Rule::kStates + 1];
  float* to[Rule::kStates + 1];
  const void* g;
  const float* keep;  // by which results are multiplied; null: by nothing
  void* low;
  std::int64_t n;
  unsigned first_block;
  float weight_decay;
  DType grad_type, low_type;
  bool has_low, in_fours;
};

// As parameters of the kernel the tensors need no copy of their own.
template <class Rule>
struct UpdateTable {
  static constexpr int kMax = 256;
  typename Rule::Common common;
  int count;
  UpdateEntry<Rule> entries[kMax];
};

template <class Rule, int N, class G>
struct UpdateValues {
  Pack<float, N> x[Rule::kStates + 1];
  Pack<G, N> g;

  __device__ __forceinline__ void fetch(const UpdateEntry<Rule>& e, std::int64_t i) {
#pragma unroll
    for (int s = 0; s <= Rule::kStates; ++s) x[s] = load<N>(e.from[s] + i);
    g = load<N>(static_cast<const G*>(e.g) + i);
  }

  template <class L>
  __device__ __forceinline__ void update(const UpdateEntry<Rule>& e, std::int64_t i, const typename Rule::Factors& f) {
    if (f.finite) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float one[Rule::kStates + 1];
#pragma unroll
        for (int s = 0; s <= Rule::kStates; ++s) one[s] = x[s].v[j];
        Rule::step(f, one, wide(g.v[j]));
#pragma unroll
        for (int s = 0; s <= Rule::kStates; ++s) x[s].v[j] = one[s];
      }
    }
    if (e.keep != nullptr) {
      const Pack<float, N> keep = load<N>(e.keep + i);
#pragma unroll
      for (int s = 0; s <= Rule::kStates; ++s)
#pragma unroll
        for (int j = 0; j < N; ++j) x[s].v[j] *= keep.v[j];
    }
#pragma unroll
    for (int s = 0; s <= Rule::kStates; ++s) store<N>(e.to[s] + i, x[s]);
    if (!e.has_low) return;
    Pack<L, N> low;
#pragma unroll
    for (int j = 0; j < N; ++j) low.v[j] = narrow<L>(x[0].v[j]);
    store<N>(static_cast<L*>(e.low) + i, low);
  }
};

template <class Rule, class G, class L>
__device__ __forceinline__ void update_block(const UpdateEntry<Rule>& e, const typename Rule::Factors& f) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - e.first_block) * kUpdatedPerBlock;
  const std::int64_t end = begin + kUpdatedPerBlock < e.n ? begin + kUpdatedPerBlock : e.n;
  if (!e.in_fours) {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kUpdateThreads) {
      UpdateValues<Rule, 1, G> values;
      values.fetch(e, i);
      values.template update<L>(e, i, f);
    }
    return;
  }
  const auto place = [&](int pass) {
    return begin + (static_cast<std::int64_t>(pass) * kUpdateThreads + threadIdx.x) * 4;
  };
  static_assert(kUpdatePasses % Rule::kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < kUpdatePasses; first += Rule::kAtOnce) {
    UpdateValues<Rule, 4, G> values[Rule::kAtOnce];
#pragma unroll
    for (int k = 0; k < Rule::kAtOnce; ++k)
      if (place(first + k) < end) values[k].fetch(e, place(first + k));
#pragma unroll
    for (int k = 0; k < Rule::kAtOnce; ++k)
      if (place(first + k) < end) values[k].template update<L>(e, place(first + k), f);
  }
}

template <class Rule, class G>
__device__ __forceinline__ void update_block(const UpdateEntry<Rule>& e, const typename Rule::Factors& f) {
  switch (e.low_type) {
    case DType::bf16: return update_block<Rule, G, Bf16>(e, f);
    case DType::f16: return update_block<Rule, G, F16>(e, f);
    default: return update_block<Rule, G, float>(e, f);
  }
}

template <class Rule>
__global__ void update_kernel(const __grid_constant__ UpdateTable<Rule> t) {
  const UpdateEntry<Rule>& e = device::cuda::entry_of_block(t.entries, t.count);
  const typename Rule::Factors f = Rule::factors(t.common, e.weight_decay);
  switch (e.grad_type) {
    case DType::bf16: return update_block<Rule, Bf16>(e, f);
    case DType::f16: return update_block<Rule, F16>(e, f);
    default: return update_block<Rule, float>(e, f);
  }
}

template <class Rule>
class Update final : public device::GroupKernel {
 public:
  explicit Update(const ir::KernelSpec& spec)
      : rule_(spec),
        n_(spec.inputs[0].elements()),
        weight_decay_(static_cast<float>(spec.attributes.real("weight_decay"))),
        grad_type_(spec.inputs[1].dtype),
        has_low_(spec.outputs.size() > kStates + 1),
        keep_(spec.inputs.back().present ? spec.inputs.size() - 1 : 0) {
    if (has_low_) low_type_ = spec.outputs[kStates + 1].dtype;
  }

  void launch_group(std::span<device::GroupKernel* const> members, std::span<const device::Launch> launches) override {
    UpdateTable<Rule> table{};
    static_assert(sizeof(table) <= 32764);
    unsigned blocks = 0;
    const auto flush = [&] {
      if (blocks > 0) update_kernel<Rule><<<blocks, kUpdateThreads, 0, stream_of(launches.front())>>>(table);
      device::cuda::launched(Rule::kName);
      table.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto& member = static_cast<const Update&>(*members[i]);
      if (member.n_ == 0) continue;
      const typename Rule::Common common = member.rule_.common(launches[i], kStates + 2);
      if (table.count == UpdateTable<Rule>::kMax || (table.count > 0 && !(table.common == common))) flush();
      table.common = common;
      UpdateEntry<Rule>& e = table.entries[table.count++];
      e = member.entry(launches[i]);
      e.first_block = blocks;
      blocks += static_cast<unsigned>(pieces(member.n_, kUpdatedPerBlock));
    }
    flush();
  }

 private:
  static constexpr std::size_t kStates = Rule::kStates;

  UpdateEntry<Rule> entry(const device::Launch& l) const {
    UpdateEntry<Rule> e{};
    e.in_fours = n_ % 4 == 0;
    for (std::size_t i = 0; i < kStates + 2; ++i) e.in_fours = e.in_fours && aligned16(l.inputs[i]);
    for (const void* p : l.outputs) e.in_fours = e.in_fours && aligned16(p);
    if (keep_ != 0) {
      e.keep = l.in<float>(keep_);
      e.in_fours = e.in_fours && aligned16(e.keep);
    }
    for (std::size_t s = 0; s <= kStates; ++s) {
      e.from[s] = l.in<float>(s == 0 ? 0 : s + 1);
      e.to[s] = l.out<float>(s);
    }
    e.g = l.inputs[1];
    e.low = has_low_ ? l.outputs[kStates + 1] : nullptr;
    e.n = n_;
    e.weight_decay = weight_decay_;
    e.grad_type = grad_type_;
    e.low_type = low_type_;
    e.has_low = has_low_;
    return e;
  }

  Rule rule_;
  std::int64_t n_;
  float weight_decay_;
  DType grad_type_, low_type_ = DType::f32;
  bool has_low_;
  std::size_t keep_;  // the operand; 0: there is none
};

}  // namespace trireme::ops::cuda
