#include "trireme/device/cpu/widened.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::device::cpu {
namespace {

constexpr std::int64_t kPart = 128;  // rows of b that are converted together

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
std::size_t f32_bytes(std::int64_t elements) { return whole_lines(static_cast<std::size_t>(elements) * sizeof(float)); }

float* floats(void* bytes, std::size_t offset = 0) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(bytes) + offset);
}

// Dense rows of f32 from rows that are `stride` elements apart.
void widen(const BFloat16* from, float* to, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[r * columns + c] = static_cast<float>(from[r * stride + c]);
}

void round(const float* from, BFloat16* to, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[r * stride + c] = static_cast<BFloat16>(from[r * columns + c]);
}

bool writes_directly(const GemmSpec& s) { return s.output == DType::f32; }

// The same product of dense f32 matrices; a packed b is dense and as it is read.
GemmSpec in_f32(const GemmSpec& s) {
  GemmSpec wide = s;
  wide.input = wide.output = DType::f32;
  wide.packed_b = false;
  wide.trans_b = s.trans_b && !s.packed_b;
  wide.lda = s.trans_a ? s.m : s.k;
  wide.ldb = wide.trans_b ? s.k : s.n;
  if (!writes_directly(s)) wide.ldc = s.n;
  return wide;
}

struct GemmRoom {
  explicit GemmRoom(const GemmSpec& s) {
    b = f32_bytes(s.m * s.k);
    c = b + (s.packed_b ? 0 : f32_bytes(s.k * s.n));
    inner = c + (writes_directly(s) ? 0 : f32_bytes(s.m * s.n));
  }
  std::size_t b, c, inner;
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

bool widens(DType dtype) {
  static const bool native = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                             __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  return dtype == DType::bf16 && !native;
}

WidenedGemm::WidenedGemm(const GemmSpec& spec, int workers) : spec_(spec), product_(in_f32(spec), workers) {}

std::size_t WidenedGemm::scratch_bytes(const GemmSpec& spec) {
  return GemmRoom(spec).inner + Gemm::scratch_bytes(in_f32(spec));
}

std::size_t WidenedGemm::packed_bytes(const GemmSpec& spec) { return f32_bytes(spec.k * spec.n); }

std::int64_t WidenedGemm::parts() const { return (spec_.k + kPart - 1) / kPart; }

void WidenedGemm::pack(std::int64_t part, const void* b, void* packed) const {
  const auto* from = static_cast<const BFloat16*>(b);
  const std::int64_t row = part * kPart;
  const std::int64_t rows = std::min(kPart, spec_.k - row);
  float* to = static_cast<float*>(packed) + row * spec_.n;
  if (!spec_.trans_b) return widen(from + row * spec_.ldb, to, rows, spec_.n, spec_.ldb);
  for (std::int64_t c = 0; c < spec_.n; ++c)
    for (std::int64_t r = 0; r < rows; ++r) to[r * spec_.n + c] = static_cast<float>(from[c * spec_.ldb + row + r]);
}

void WidenedGemm::run(int worker, const void* a, const void* b, void* c, void* scratch) const {
  const GemmRoom room(spec_);
  widen(static_cast<const BFloat16*>(a), floats(scratch), spec_.trans_a ? spec_.k : spec_.m,
        spec_.trans_a ? spec_.m : spec_.k, spec_.lda);
  if (!spec_.packed_b) {
    widen(static_cast<const BFloat16*>(b), floats(scratch, room.b), spec_.trans_b ? spec_.n : spec_.k,
          spec_.trans_b ? spec_.k : spec_.n, spec_.ldb);
    b = floats(scratch, room.b);
  }
  void* const to = writes_directly(spec_) ? c : floats(scratch, room.c);
  product_.run(worker, floats(scratch), b, to, floats(scratch, room.inner));
  if (!writes_directly(spec_)) round(floats(to), static_cast<BFloat16*>(c), spec_.m, spec_.n, spec_.ldc);
}

WidenedConv::WidenedConv(const ConvSpec& spec, int workers) : spec_(spec), conv_(in_f32(spec), workers) {}

Conv::Bytes WidenedConv::bytes(const ConvSpec& spec) {
  Conv::Bytes bytes = Conv::bytes(in_f32(spec));
  bytes.scratch += f32_bytes(x_elements(spec)) + f32_bytes(y_elements(spec));
  if (spec.pass != ConvSpec::Pass::weight_gradient) bytes.pack_scratch += f32_bytes(weight_elements(spec));
  return bytes;
}

void WidenedConv::pack(const void* weights, void* packed, void* scratch) const {
  const std::int64_t count = weight_elements(spec_);
  widen(static_cast<const BFloat16*>(weights), floats(scratch), 1, count, count);
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
  if (spec_.pass != Pass::input_gradient) widen(static_cast<const BFloat16*>(x), wide_x, 1, xs, xs);
  if (spec_.pass != Pass::forward) widen(static_cast<const BFloat16*>(y), wide_y, 1, ys, ys);
  conv_.run(worker, wide_x, packed, bias, wide_y, floats(scratch, f32_bytes(xs) + f32_bytes(ys)));
  auto* const result = static_cast<BFloat16*>(const_cast<void*>(spec_.pass == Pass::forward ? y : x));
  if (spec_.pass == Pass::forward) round(wide_y, result, 1, ys, ys);
  if (spec_.pass == Pass::input_gradient) round(wide_x, result, 1, xs, xs);
}

}  // namespace trireme::device::cpu
