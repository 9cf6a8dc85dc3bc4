#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/core/dtype.h"

namespace trireme::device::cuda {

// Attention [batch, rows, heads, dim], each operand by its strides; as many keys as queries.
struct FlashSpec {
  std::int64_t batch = 0, rows = 0, heads = 0, key_heads = 0, dim = 0;
  bool causal = true;
  float scale = 1;
  DType dtype = DType::bf16;                  // bf16 or f16
  std::array<std::int64_t, 3> q{}, k{}, v{};  // strides of batch, row and head; those of dim are 1
  std::array<std::int64_t, 3> o{};

  bool fits() const;  // whether the library is worth asking
};

// All that is used of cuDNN's fused attention, through cudnn-frontend. The library is opened when it is first asked
// for; `make` gives null where it is missing, cannot do this, or wants more scratch than `allowance`.
class Flash {
 public:
  static std::unique_ptr<Flash> make_forward(const FlashSpec& spec, std::size_t allowance);
  // Gradients have the strides of their operands, do those of o. The same bits every time.
  static std::unique_ptr<Flash> make_backward(const FlashSpec& spec, std::size_t allowance);
  ~Flash();
  Flash(const Flash&) = delete;
  Flash& operator=(const Flash&) = delete;

  // From the sizes alone.
  static std::size_t forward_workspace(const FlashSpec& spec);
  static std::size_t backward_workspace(const FlashSpec& spec);

  // lse f32 [batch, heads, rows]
  void forward(void* stream, const void* q, const void* k, const void* v, void* o, float* lse, void* workspace) const;
  struct Gradients {
    const void *q, *k, *v, *o, *d;
    const float* lse;
    void *dq, *dk, *dv;
  };
  void backward(void* stream, const Gradients& g, void* workspace) const;

 private:
  Flash();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "9.19.0"; empty where the library is missing.
const char* cudnn_version();

}  // namespace trireme::device::cuda
