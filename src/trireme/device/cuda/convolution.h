#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/core/dtype.h"
#include "trireme/device/cuda/gemm.h"

namespace trireme::device::cuda {

// A convolution of x[n,h,w,c] with weights [k,r,s,c/groups] to y[n,p,q,k], or one of its gradients; sums in f32.
struct ConvolutionSpec {
  enum class Pass { forward, input_gradient, weight_gradient };
  Pass pass = Pass::forward;
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t k = 0, r = 1, s = 1;
  std::int64_t p = 0, q = 0;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  DType input = DType::f32;   // f32, bf16 or f16
  DType output = DType::f32;  // the same, or f32
  bool tf32 = false;          // f32 operands may be rounded to 10 bits of fraction

  double flops() const;
  std::string str() const;
  // As before the image where that gives the extents there are; at the edge of a slice of an image, what they need.
  std::int64_t padding_after(std::size_t dimension) const;
  bool evenly_padded() const { return padding_after(0) == padding[0] && padding_after(1) == padding[1]; }
};

// The matrix product that a convolution of single pixels is.
std::optional<GemmSpec> as_product(const ConvolutionSpec& spec);

// All that is used of cuDNN's convolutions, through cudnn-frontend: the same bits every time, f32 in true f32 unless
// tf32 is allowed. Large ones are measured once on a machine, the library's proposals and, for single pixels, the
// matrix product; the fastest within the allowance that gives the bits of the first proposal (trial.h) is kept
// (algorithm_cache.h).
class Convolution {
 public:
  // Null where the library is missing or cannot do this within the allowance. Nor are weight gradients of unevenly
  // padded images the library's: cuDNN 9.1x gave wrong ones (f32, 16 channels in, 64 out, 3×3).
  // `run`: as Gemm's.
  static std::unique_ptr<Convolution> make(const ConvolutionSpec& spec, std::size_t allowance,
                                           Algorithms* run = nullptr);
  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // The allowance, from the sizes alone.
  static std::size_t workspace(const ConvolutionSpec& spec);

  // One of the three is written: y, x or w by the pass. All must lie at multiples of 16 bytes.
  void run(void* stream, const void* x, const void* w, const void* y, void* workspace) const;

 private:
  Convolution();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::device::cuda
