#pragma once
#include "trireme/device/cpu/onednn.h"

// bf16 on CPUs for which oneDNN has no bf16 kernels (those without AVX-512): operands are converted to f32 in scratch,
// the f32 kernels do the work, and bf16 results are rounded once. Slower than f32 by the conversions, with bf16's
// results.
namespace trireme::device::cpu {

// Whether this CPU needs it for operands of that type.
bool widens(DType dtype);

class WidenedGemm {
 public:
  WidenedGemm(const GemmSpec& spec, int workers);

  static std::size_t scratch_bytes(const GemmSpec& spec);
  static std::size_t packed_bytes(const GemmSpec& spec);
  std::int64_t parts() const;
  void pack(std::int64_t part, const void* b, void* packed) const;
  void run(int worker, const void* a, const void* b, void* c, void* scratch) const;

 private:
  GemmSpec spec_;
  Gemm product_;
};

class WidenedConv {
 public:
  WidenedConv(const ConvSpec& spec, int workers);

  static Conv::Bytes bytes(const ConvSpec& spec);
  void pack(const void* weights, void* packed, void* scratch) const;
  void unpack(const void* packed, float* weights, bool accumulate, void* scratch) const;
  void run(int worker, const void* x, const void* packed, const float* bias, const void* y, void* scratch) const;

 private:
  ConvSpec spec_;
  Conv conv_;
};

}  // namespace trireme::device::cpu
