#pragma once
#include <optional>

#include "trireme/device/cpu/onednn.h"

// bf16 on CPUs for which oneDNN has no bf16 kernels (products: those without AVX512_BF16; convolutions: those without
// AVX-512): operands are converted to f32 in scratch, the f32 kernels do the work, and bf16 results are rounded once.
// Slower than f32 by the conversions, with bf16's results.
namespace trireme::device::cpu {

// Block by block, so that little scratch is enough: the columns of c, and for each block of them the rows of b.
class WidenedGemm {
 public:
  static constexpr std::int64_t kColumns = 128, kRows = 128;

  WidenedGemm(const GemmSpec& spec, int workers);

  static std::size_t scratch_bytes(const GemmSpec& spec);
  static std::size_t packed_bytes(const GemmSpec& spec);  // b as it is, its rows together
  std::int64_t parts() const;
  void pack(std::int64_t part, const void* b, void* packed) const;
  void run(int worker, const void* a, const void* b, void* c, void* scratch) const;

 private:
  GemmSpec spec_;
  std::array<std::optional<Gemm>, 4> products_;  // of whole blocks, and of those at the edges (1: columns, 2: rows)
};

class WidenedConv {
 public:
  WidenedConv(const ConvSpec& spec, int workers);

  // What is needed in addition to the f32 kernel's bytes.
  static Conv::Bytes copies(const ConvSpec& spec);
  void pack(const void* weights, void* packed, void* scratch) const;
  void unpack(const void* packed, float* weights, bool accumulate, void* scratch) const;
  void run(int worker, const void* x, const void* packed, const float* bias, const void* y, void* scratch) const;

 private:
  ConvSpec spec_;
  Conv conv_;
};

}  // namespace trireme::device::cpu
