#include "trireme/device/cpu/allowance.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cpu/widened.h"

namespace trireme::device::cpu {
namespace {

std::int64_t whole_blocks(std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block * block; }

// The library's blocks have 64 columns of b, and rows of b that fill a line of the cache.
constexpr std::int64_t kBlockColumns = 64;
std::int64_t block_rows(DType input) { return 64 / static_cast<std::int64_t>(size_of(input)); }

// Of a product of dense matrices. To the byte what AVX-512 takes of f32, but for large k.
std::size_t library_scratch(const GemmSpec& s, bool accumulate) {
  constexpr std::int64_t kChunk = 512;  // rows of b that are multiplied at once
  const bool f32 = s.input == DType::f32;
  const std::int64_t rows = whole_blocks(s.k, block_rows(s.input));
  std::size_t bytes = 640;  // where the blocks are
  const auto add = [&](std::int64_t elements, DType dtype) {
    bytes += static_cast<std::size_t>(elements) * size_of(dtype) + 128;
  };
  // A copy of a where it cannot be read as it is. Its rows lie a line further apart where that is a large power of two;
  // those of several chunks may have the length of the longest twice.
  if (s.trans_a || (!f32 && s.k % 2 != 0))
    add(s.m * (s.k > kChunk ? 2 * rows : rows == kChunk ? rows + block_rows(s.input) : rows), s.input);
  // A block of columns of b, in the layout of packed ones. Rows of b may be so far apart that they are copied too.
  if (!s.packed_b && (!f32 || s.trans_b || s.n % kChunk == 0 || s.k > kChunk))
    add(kBlockColumns *
            (f32 && !accumulate && s.k > kChunk && s.k <= 2 * kChunk ? kChunk : std::min(rows, (f32 ? 2 : 4) * kChunk)),
        s.input);
  // Sums over the chunks.
  if ((accumulate || s.output == DType::bf16) && s.k > kChunk) add(s.m * std::min(s.n, kBlockColumns), DType::f32);
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

OwnLines allocate_lines(std::size_t bytes) {
  OwnLines lines(std::aligned_alloc(64, whole_lines(bytes)), std::free);
  if (!lines) fail("no room for the {} that a kernel needs beyond its workspace", format_bytes(bytes));
  return lines;
}

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
  Bytes bytes;
  const bool depthwise = spec.groups > 1 && spec.c == spec.groups && spec.k == spec.groups;
  const std::int64_t elements =
      depthwise ? whole_blocks(spec.groups, 16) * spec.r * spec.s : spec.groups * group_elements(spec);
  // bf16 is brought to f32 where the CPU does not have it.
  bytes.packed = line_bytes(elements, DType::f32);
  // Where the blocks are that are multiplied together: more of them in a small cache.
  if (spec.pass == ConvSpec::Pass::forward) bytes.scratch = 16384;
  // The pixels that a window of one reads, together.
  if (spec.r * spec.s == 1 && (spec.stride[0] > 1 || spec.stride[1] > 1))
    bytes.scratch += line_bytes(spec.p * spec.q * whole_blocks(spec.c, 16), DType::f32) + 128;
  if (spec.dtype == DType::bf16) {
    const Bytes copies = WidenedConv::copies(spec);
    bytes.scratch += copies.scratch;
    bytes.pack_scratch += copies.pack_scratch;
  }
  return bytes;
}

}  // namespace trireme::device::cpu
