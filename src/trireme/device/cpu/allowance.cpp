#include "trireme/device/cpu/allowance.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/device/cpu/widened.h"

namespace trireme::device::cpu {
namespace {

std::int64_t whole_blocks(std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block * block; }

// The library's blocks have 64 columns of b, and rows of b that fill a line of the cache.
constexpr std::int64_t kBlockColumns = 64;
std::int64_t block_rows(DType input) { return 64 / static_cast<std::int64_t>(size_of(input)); }

// Of a product of dense matrices.
std::size_t library_scratch(const GemmSpec& s, bool accumulate) {
  constexpr std::size_t kAddresses = 1024;  // of the blocks that are multiplied together
  const std::int64_t columns = whole_blocks(s.k, block_rows(s.input));
  std::size_t bytes = kAddresses;
  // A copy of a's rows where they cannot be read as they are. Those of a large power of two are moved apart by a line;
  // more than 512 are cut into two pieces, which may have the larger's size.
  if (s.trans_a || (s.input == DType::bf16 && s.k % 2 != 0))
    bytes += line_bytes(s.m * (s.k <= 512 ? columns + block_rows(s.input) : 2 * columns), s.input);
  if (!s.packed_b) bytes += line_bytes(kBlockColumns * columns, s.input);
  if (accumulate || s.output == DType::bf16) bytes += line_bytes(s.m * kBlockColumns, DType::f32);
  return bytes;
}

// The elements of the weights of one group in the layouts that the library may choose: channels in blocks of 16, but
// for first layers; forward, outputs alone in blocks of up to 64.
std::int64_t group_elements(const ConvSpec& s) {
  const std::int64_t c = s.c / s.groups;
  const std::int64_t k = s.k / s.groups;
  const std::int64_t window = s.r * s.s;
  std::int64_t most = c * k;
  if (s.groups == 1) {
    const bool first_layer = c <= 3 && window > 1 && s.pass != ConvSpec::Pass::input_gradient;
    const std::int64_t channels = first_layer ? (c == 3 ? 3 : 8) : whole_blocks(c, 16);
    most = channels * whole_blocks(k, 16);
  }
  if (s.pass == ConvSpec::Pass::forward) {
    std::int64_t outputs = k <= 16 ? 16 : whole_blocks(k, 32);
    if (window == 1 && k > 32) outputs = std::max(outputs, whole_blocks(k, 48));
    most = std::max(most, c * outputs);
  }
  return most * window;
}

}  // namespace

GemmCopies::GemmCopies(const GemmSpec& s) {
  TRI_CHECK(s.m > 0 && s.n > 0 && s.k > 0, "gemm of {} x {} x {}", s.m, s.n, s.k);
  TRI_CHECK(!s.accumulate || s.output == DType::f32, "only an f32 gemm accumulates");
  a = s.lda != (s.trans_a ? s.m : s.k);
  b = !s.packed_b && s.ldb != (s.trans_b ? s.k : s.n);
  c = s.ldc != s.n;
  if (a) a_bytes = line_bytes(s.m * s.k, s.input);
  if (b) b_bytes = line_bytes(s.k * s.n, s.input);
  if (c) c_bytes = line_bytes(s.m * s.n, s.output);
}

std::size_t Gemm::scratch_bytes(const GemmSpec& spec) {
  const GemmCopies copies(spec);
  const std::size_t bytes = copies.bytes() + whole_lines(library_scratch(spec, spec.accumulate && !copies.c));
  return spec.input == DType::bf16 ? std::max(bytes, WidenedGemm::scratch_bytes(spec)) : bytes;
}

std::size_t Gemm::packed_bytes(const GemmSpec& spec) {
  return line_bytes(whole_blocks(spec.k, block_rows(spec.input)) * whole_blocks(spec.n, kBlockColumns), spec.input);
}

Conv::Bytes Conv::bytes(const ConvSpec& spec) {
  constexpr std::size_t kAddresses = 16384;
  Bytes bytes;
  const bool depthwise = spec.groups > 1 && spec.c == spec.groups && spec.k == spec.groups;
  const std::int64_t elements =
      depthwise ? whole_blocks(spec.groups, 16) * spec.r * spec.s : spec.groups * group_elements(spec);
  // bf16 is brought to f32 where the CPU does not have it.
  bytes.packed = line_bytes(elements, DType::f32);
  bytes.scratch = kAddresses;
  // The pixels that a window of one reads, together.
  if (spec.r * spec.s == 1 && (spec.stride[0] > 1 || spec.stride[1] > 1))
    bytes.scratch += line_bytes(spec.p * spec.q * spec.c, DType::f32);
  if (spec.dtype == DType::bf16) {
    const Bytes copies = WidenedConv::copies(spec);
    bytes.scratch += copies.scratch;
    bytes.pack_scratch += copies.pack_scratch;
  }
  return bytes;
}

}  // namespace trireme::device::cpu
