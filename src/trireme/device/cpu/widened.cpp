#include "trireme/device/cpu/widened.h"

#include <algorithm>

#include "trireme/device/cpu/allowance.h"

namespace trireme::device::cpu {
namespace {

constexpr std::int64_t kPart = 128;  // rows of b that are packed together

std::size_t f32_bytes(std::int64_t elements) { return line_bytes(elements, DType::f32); }

float* floats(void* bytes, std::size_t offset = 0) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(bytes) + offset);
}

void widen(const BFloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void round(const float* from, BFloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<BFloat16>(from[i]);
}

// Part of a matrix [rows, columns], or of its transpose in memory, as dense rows of f32.
struct Part {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
};
void widen(const BFloat16* from, bool transposed, std::int64_t stride, const Part& part, float* to) {
  if (!transposed) {
    for (std::int64_t r = 0; r < part.rows; ++r)
      widen(from + (part.row + r) * stride + part.column, to + r * part.columns, part.columns);
    return;
  }
  for (std::int64_t c = 0; c < part.columns; ++c)
    for (std::int64_t r = 0; r < part.rows; ++r)
      to[r * part.columns + c] = static_cast<float>(from[(part.column + c) * stride + part.row + r]);
}

// The sums of a block, to their columns of c.
void put_block(const float* sums, const GemmSpec& s, std::int64_t column, std::int64_t columns, void* c) {
  for (std::int64_t r = 0; r < s.m; ++r) {
    const float* from = sums + r * columns;
    const std::int64_t at = r * s.ldc + column;
    if (s.output == DType::bf16) {
      round(from, static_cast<BFloat16*>(c) + at, columns);
      continue;
    }
    float* const to = static_cast<float*>(c) + at;
    for (std::int64_t i = 0; i < columns; ++i) to[i] = s.accumulate ? to[i] + from[i] : from[i];
  }
}

// A block's product of dense f32 matrices, added to its sums.
GemmSpec block_product(const GemmSpec& s, std::int64_t columns, std::int64_t rows) {
  return {.m = s.m, .n = columns, .k = rows, .lda = rows, .ldb = columns, .ldc = columns, .accumulate = true};
}

struct BlockRoom {
  explicit BlockRoom(const GemmSpec& s) {
    const std::int64_t columns = std::min(s.n, WidenedGemm::kColumns);
    const std::int64_t rows = std::min(s.k, WidenedGemm::kRows);
    b = f32_bytes(s.m * rows);
    sums = b + f32_bytes(rows * columns);
    inner = sums + f32_bytes(s.m * columns);
    bytes = inner + Gemm::scratch_bytes(block_product(s, columns, rows));
  }
  std::size_t b, sums, inner, bytes;
};

ConvSpec in_f32(const ConvSpec& s) {
  ConvSpec wide = s;
  wide.dtype = DType::f32;
  return wide;
}

std::int64_t x_elements(const ConvSpec& s) { return s.n * s.h * s.w * s.c; }
std::int64_t y_elements(const ConvSpec& s) { return s.n * s.p * s.q * s.k; }
std::int64_t weight_elements(const ConvSpec& s) { return s.k * s.r * s.s * (s.c / s.groups); }

}  // namespace

WidenedGemm::WidenedGemm(const GemmSpec& spec, int workers) : spec_(spec) {
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const std::int64_t columns = (i & 1) != 0 ? spec.n % kColumns : kColumns;
    const std::int64_t rows = (i & 2) != 0 ? spec.k % kRows : kRows;
    if (columns > 0 && rows > 0 && columns <= spec.n && rows <= spec.k)
      products_[i].emplace(block_product(spec, columns, rows), workers);
  }
}

std::size_t WidenedGemm::scratch_bytes(const GemmSpec& spec) { return BlockRoom(spec).bytes; }

std::size_t WidenedGemm::packed_bytes(const GemmSpec& spec) { return line_bytes(spec.k * spec.n, DType::bf16); }

std::int64_t WidenedGemm::parts() const { return (spec_.k + kPart - 1) / kPart; }

void WidenedGemm::pack(std::int64_t part, const void* b, void* packed) const {
  const auto* from = static_cast<const BFloat16*>(b);
  const std::int64_t row = part * kPart;
  const std::int64_t rows = std::min(kPart, spec_.k - row);
  BFloat16* const to = static_cast<BFloat16*>(packed) + row * spec_.n;
  if (!spec_.trans_b) {
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from + (row + r) * spec_.ldb, spec_.n, to + r * spec_.n);
    return;
  }
  for (std::int64_t c = 0; c < spec_.n; ++c)
    for (std::int64_t r = 0; r < rows; ++r) to[r * spec_.n + c] = from[c * spec_.ldb + row + r];
}

void WidenedGemm::run(int worker, const void* a, const void* b, void* c, void* scratch) const {
  const BlockRoom room(spec_);
  const bool b_transposed = spec_.trans_b && !spec_.packed_b;
  const std::int64_t b_stride = spec_.packed_b ? spec_.n : spec_.ldb;
  float* const sums = floats(scratch, room.sums);
  for (std::int64_t column = 0; column < spec_.n; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, spec_.n - column);
    std::fill_n(sums, spec_.m * columns, 0.0F);
    for (std::int64_t row = 0; row < spec_.k; row += kRows) {
      const std::int64_t rows = std::min(kRows, spec_.k - row);
      widen(static_cast<const BFloat16*>(a), spec_.trans_a, spec_.lda, {0, spec_.m, row, rows}, floats(scratch));
      widen(static_cast<const BFloat16*>(b), b_transposed, b_stride, {row, rows, column, columns},
            floats(scratch, room.b));
      products_[(columns != kColumns ? 1U : 0U) | (rows != kRows ? 2U : 0U)]->run(
          worker, floats(scratch), floats(scratch, room.b), sums, floats(scratch, room.inner));
    }
    put_block(sums, spec_, column, columns, c);
  }
}

WidenedConv::WidenedConv(const ConvSpec& spec, int workers) : spec_(spec), conv_(in_f32(spec), workers) {}

Conv::Bytes WidenedConv::copies(const ConvSpec& spec) {
  Conv::Bytes bytes;
  bytes.scratch = f32_bytes(x_elements(spec)) + f32_bytes(y_elements(spec));
  if (spec.pass != ConvSpec::Pass::weight_gradient) bytes.pack_scratch = f32_bytes(weight_elements(spec));
  return bytes;
}

void WidenedConv::pack(const void* weights, void* packed, void* scratch) const {
  const std::int64_t count = weight_elements(spec_);
  widen(static_cast<const BFloat16*>(weights), floats(scratch), count);
  conv_.pack(scratch, packed, floats(scratch, f32_bytes(count)));
}

void WidenedConv::unpack(const void* packed, float* weights, bool accumulate, void* scratch) const {
  conv_.unpack(packed, weights, accumulate, scratch);
}

void WidenedConv::run(int worker, const void* x, const void* packed, const float* bias, const void* y,
                      void* scratch) const {
  using Pass = ConvSpec::Pass;
  const std::int64_t xs = x_elements(spec_);
  const std::int64_t ys = y_elements(spec_);
  float* const wide_x = floats(scratch);
  float* const wide_y = floats(scratch, f32_bytes(xs));
  if (spec_.pass != Pass::input_gradient) widen(static_cast<const BFloat16*>(x), wide_x, xs);
  if (spec_.pass != Pass::forward) widen(static_cast<const BFloat16*>(y), wide_y, ys);
  conv_.run(worker, wide_x, packed, bias, wide_y, floats(scratch, f32_bytes(xs) + f32_bytes(ys)));
  auto* const result = static_cast<BFloat16*>(const_cast<void*>(spec_.pass == Pass::forward ? y : x));
  if (spec_.pass == Pass::forward) round(wide_y, result, ys);
  if (spec_.pass == Pass::input_gradient) round(wide_x, result, xs);
}

}  // namespace trireme::device::cpu
