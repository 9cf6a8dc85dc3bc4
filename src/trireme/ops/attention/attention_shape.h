#pragma once
#include <memory>
#include <span>

#include "trireme/core/shape.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// The extents of an attention, whichever way its operands are laid out.
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;
  std::int64_t dim = 0;
  bool packed = false;
  bool causal = true;
  float scale = 1;

  // Key j is visible to query i when j <= i + shift().
  std::int64_t shift() const { return keys - queries; }
  // Pairs of a query and a key that it sees, over all batch rows and heads; the most that documents may leave of them.
  double visible_pairs() const;
};

// From the operands q, k?, v? (the first three of `inputs`); throws what was expected when they do not fit.
AttentionShape attention_shape(std::span<const TensorType> inputs, const ir::Attributes& attributes);

// Where the operand `starts` is among those of attention and of its gradient, the last of each; and whether it is
// given.
inline constexpr std::size_t kStarts = 3;
inline constexpr std::size_t kStartsOfGrad = 6;
inline bool given(std::span<const TensorType> inputs, std::size_t operand) {
  return inputs.size() > operand && inputs[operand].present;
}
// Null where it is not given.
inline const std::int32_t* starts_in(const device::Launch& launch, std::size_t operand) {
  return launch.inputs.size() > operand ? launch.in<std::int32_t>(operand) : nullptr;
}

// A tensor [batch, rows, heads, dim] addressed by strides, so that the parts of a packed one need no copy.
template <class T>
struct Heads {
  T* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t row = 0;
  std::int64_t head = 0;

  constexpr T* at(std::int64_t b, std::int64_t r, std::int64_t h) const {
    return data + b * batch + r * row + h * head;
  }
};

template <class T>
Heads<T> heads_of(T* data, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data, rows * heads * dim, heads * dim, dim};
}

// Part 0, 1 or 2 (queries, keys, values) of a packed tensor.
template <class T>
Heads<T> packed_part(T* data, std::int64_t part, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data + part * heads * dim, rows * 3 * heads * dim, 3 * heads * dim, dim};
}

std::shared_ptr<device::Kernel> prepare_attention_cpu(const ir::KernelSpec& spec);
std::size_t attention_workspace_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_attention_grad_cpu(const ir::KernelSpec& spec);
std::size_t attention_grad_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
