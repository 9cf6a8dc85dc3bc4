#pragma once
#include "trireme/device/cpu/onednn.h"

// Products of bf16 by the tile instructions of Intel CPUs (AMX): a tile of a (16 rows, 32 of k) times a tile of b
// (32 of k, 16 columns) is added to 16 by 16 sums in f32. oneDNN's kernels for them cannot be used (onednn.cpp).
//
// Each sum is made in one pass over k in steps of 32, and c is added last: its bits depend on the operands and k, not
// on m, n, the layouts or the block that the element is in. Numbers below f32's normal range count as zero.
namespace trireme::device::cpu {

// Whether the CPU has the instructions and Linux lets this process use them, which the first call asks for.
bool amx_usable();

// Runs only where amx_usable(). It has no state: any number of threads may share one.
class AmxGemm {
 public:
  explicit AmxGemm(const GemmSpec& spec);

  // bf16, and a block of 32 columns of b that is packed in scratch fits in there.
  static bool takes(const GemmSpec& spec);
  static std::size_t scratch_bytes(const GemmSpec& spec);
  static std::size_t packed_bytes(const GemmSpec& spec);
  std::int64_t parts() const;
  void pack(std::int64_t part, const void* b, void* packed) const;
  void run(const void* a, const void* b, void* c, void* scratch) const;

 private:
  GemmSpec spec_;
};

}  // namespace trireme::device::cpu
