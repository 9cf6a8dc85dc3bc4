#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/core/dtype.h"

namespace trireme::device {
class Algorithms;
}

namespace trireme::device::cuda {

// c[m,n] = a[m,k] · b[k,n], or c += a · b, on row-major matrices with leading dimensions, sums in f32. Transposed
// operands are stored as a[k,m], b[n,k].
struct GemmSpec {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  DType input = DType::f32;   // f32, bf16 or f16
  DType output = DType::f32;  // the same, or f32
  bool tf32 = false;          // f32 operands may be rounded to 10 bits of fraction
  bool accumulate = false;
  bool add = false;   // c = a·b + aux, the same bits where aux is c; not with accumulate
  bool bias = false;  // of c's type, added to every row
  // c = gelu(a·b + bias), by the approximation with tanh; keep_argument leaves a·b + bias in `aux`.
  bool gelu = false;
  bool keep_argument = false;
  bool gelu_gradient = false;  // c = (a·b) ⊙ gelu'(aux), by the same
  // Operands of eight-bit floats (input is u8), a as it is and b transposed, times their scales.
  bool fp8 = false;
  bool a_e5m2 = false, b_e5m2 = false;  // else e4m3; not both
  bool fast_sums = false;               // fp8: all sums in the tensor cores' own precision
  bool adds() const { return accumulate || add; }
  friend bool operator==(const GemmSpec&, const GemmSpec&) = default;
};

// All that is used of cuBLASLt. Its scratch is a fixed allowance, from the sizes alone, within which algorithms are
// chosen: the library's first proposal, or for large products the fastest of those that give the same bits (trial.h),
// measured once on a machine (algorithm_cache.h).
class Gemm {
 public:
  // Chooses, by what was recorded with the run; null: with none.
  explicit Gemm(const GemmSpec& spec, Algorithms* run = nullptr);
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  static std::size_t workspace(const GemmSpec& spec);
  // Whether the epilogue of gelu or its gradient can be had for these sizes.
  static bool has_gelu(const GemmSpec& spec);

  // `stream` is a cudaStream_t; `aux` has the shape of c and its leading dimension.
  void run(void* stream, const void* a, const void* b, void* c, void* workspace, const void* bias = nullptr,
           void* aux = nullptr) const;
  // The same of eight-bit floats, with their scales in the GPU's memory.
  void run_fp8(void* stream, const void* a, const void* b, const float* a_scale, const float* b_scale, void* c,
               void* workspace) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::device::cuda
