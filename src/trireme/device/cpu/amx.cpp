#include "trireme/device/cpu/amx.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/device/cpu/allowance.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trireme::device::cpu {
namespace {

// A line is a row of a tile: 32 of bf16, or 16 sums. Lines of b have two of k for each column, next to each other.
constexpr std::int64_t kLine = 64, kTile = 16 * kLine;
constexpr std::int64_t kStep = 32;    // of k
constexpr std::int64_t kBlock = 32;   // rows and columns whose sums are made together: two tiles by two
constexpr std::int64_t kSteps = 4;    // in a part of b that is packed together
constexpr std::int64_t kChunk = 512;  // rows of a whose last step is copied at a time
constexpr std::int64_t kLongest = 4096;

std::int64_t steps_of(const GemmSpec& s) { return (s.k + kStep - 1) / kStep; }
std::int64_t tiles_across(std::int64_t columns) { return (columns + 15) / 16; }
std::int64_t packed_a_bytes(const GemmSpec& s) { return s.trans_a ? s.m * steps_of(s) * kLine : 0; }

}  // namespace

AmxGemm::AmxGemm(const GemmSpec& spec) : spec_(spec) {
  TRI_CHECK(takes(spec), "no product by tiles of {} with {} rows of b", name_of(spec.input), spec.k);
  TRI_CHECK(spec.m > 0 && spec.n > 0 && spec.k > 0, "gemm of {} x {} x {}", spec.m, spec.n, spec.k);
  TRI_CHECK(!spec.accumulate || spec.output == DType::f32, "only an f32 gemm accumulates");
}

bool AmxGemm::takes(const GemmSpec& spec) { return spec.input == DType::bf16 && (spec.packed_b || spec.k <= kLongest); }

std::size_t AmxGemm::scratch_bytes(const GemmSpec& spec) {
  const std::int64_t block = spec.packed_b ? 0 : std::min<std::int64_t>(tiles_across(spec.n), 2);
  return static_cast<std::size_t>(packed_a_bytes(spec) + block * steps_of(spec) * kTile);
}

std::size_t AmxGemm::packed_bytes(const GemmSpec& spec) {
  return static_cast<std::size_t>(tiles_across(spec.n) * steps_of(spec) * kTile);
}

std::int64_t AmxGemm::parts() const { return (steps_of(spec_) + kSteps - 1) / kSteps; }

#if defined(__x86_64__)

// Every build has these functions, whatever CPU it is for; only they use the instructions.
#define TRIREME_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))
#define TRIREME_AMX_INLINE TRIREME_AMX __attribute__((always_inline)) inline

bool amx_usable() {
  static const bool usable = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    constexpr unsigned kBFloat16 = 1U << 22U;
    constexpr unsigned kTiles = 1U << 24U;
    if ((d & kBFloat16) == 0 || (d & kTiles) == 0) return false;
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512bf16"))
      return false;
    // Linux grants the room for tiles in a thread's state when a process asks for it.
    constexpr long kRequestPermission = 0x1023;
    constexpr long kTileData = 18;
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}

namespace {

// The forms of intrinsics without a mask read a variable that GCC 12 takes for uninitialised.
constexpr __mmask16 kAll16 = 0xffff;
constexpr __mmask8 kAll8 = 0xff;

// The first `count` elements of a vector, at most all.
TRIREME_AMX inline __mmask32 first_32(std::int64_t count) {
  return count >= 32 ? ~0U : count <= 0 ? 0U : (1U << static_cast<unsigned>(count)) - 1;
}
TRIREME_AMX inline __mmask16 first_16(std::int64_t count) {
  return static_cast<__mmask16>(first_32(std::min<std::int64_t>(count, 16)));
}

// The compiler does not know that tile loads read memory.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

// Sixteen lines of sixteen 4-byte elements.
TRIREME_AMX_INLINE void transpose_lines(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(kAll16, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(kAll16, r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 16
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_maskz_unpacklo_epi64(kAll8, t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_maskz_unpackhi_epi64(kAll8, t[i + j], t[i + j + 2]);
    }
    // Now each 128 bits of r[4i + j] are a column: 4·(which 128 bits) + j of rows 4i … 4i+3.
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_maskz_shuffle_i32x4(kAll16, r[j], r[j + 4], 0x88);
    t[j + 4] = _mm512_maskz_shuffle_i32x4(kAll16, r[j], r[j + 4], 0xdd);
    t[j + 8] = _mm512_maskz_shuffle_i32x4(kAll16, r[j + 8], r[j + 12], 0x88);
    t[j + 12] = _mm512_maskz_shuffle_i32x4(kAll16, r[j + 8], r[j + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_maskz_shuffle_i32x4(kAll16, t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_maskz_shuffle_i32x4(kAll16, t[j], t[j + 8], 0xdd);
    r[j + 4] = _mm512_maskz_shuffle_i32x4(kAll16, t[j + 4], t[j + 12], 0x88);
    r[j + 12] = _mm512_maskz_shuffle_i32x4(kAll16, t[j + 4], t[j + 12], 0xdd);
  }
}

// One step of a block of columns of b[k,n].
TRIREME_AMX void pack_rows_of_b(const GemmSpec& s, const BFloat16* b, std::int64_t column, std::int64_t step,
                                std::byte* to) {
  alignas(64) static constexpr std::uint16_t kPairs[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i first = _mm512_load_si512(kPairs[0]);
  const __m512i second = _mm512_load_si512(kPairs[1]);
  const __mmask32 columns = first_32(s.n - column);
  const bool both = s.n - column > 16;
  const BFloat16* from = b + step * kStep * s.ldb + column;
  for (std::int64_t pair = 0; pair < 16; ++pair, from += 2 * s.ldb, to += kLine) {
    const std::int64_t left = s.k - step * kStep - 2 * pair;
    const __m512i even = left > 0 ? _mm512_maskz_loadu_epi16(columns, from) : _mm512_setzero_si512();
    const __m512i odd = left > 1 ? _mm512_maskz_loadu_epi16(columns, from + s.ldb) : _mm512_setzero_si512();
    _mm512_store_si512(to, _mm512_permutex2var_epi16(even, first, odd));
    if (both) _mm512_store_si512(to + kTile, _mm512_permutex2var_epi16(even, second, odd));
  }
}

// The same of b[n,k], whose pairs are together already.
TRIREME_AMX void pack_columns_of_b(const GemmSpec& s, const BFloat16* b, std::int64_t column, std::int64_t step,
                                   std::byte* to) {
  const __mmask32 elements = first_32(s.k - step * kStep);
  const std::int64_t end = std::min(s.n, column + kBlock);
  for (; column < end; column += 16, to += kTile) {
    __m512i lines[16];
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < 16; ++i)
      lines[i] = column + i < end ? _mm512_maskz_loadu_epi16(elements, b + (column + i) * s.ldb + step * kStep)
                                  : _mm512_setzero_si512();
    transpose_lines(lines);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * kLine, lines[i]);
  }
}

// Steps of a block of columns of b; `to` is where the block's first step is.
void pack_steps(const GemmSpec& s, const BFloat16* b, std::int64_t column, std::int64_t begin, std::int64_t end,
                std::byte* to) {
  const std::int64_t bytes = std::min<std::int64_t>(tiles_across(s.n - column), 2) * kTile;
  for (std::int64_t step = begin; step < end; ++step)
    (s.trans_b ? pack_columns_of_b : pack_rows_of_b)(s, b, column, step, to + step * bytes);
}

// One step of 16 rows of a[k,m], of which `used` are there.
TRIREME_AMX void pack_rows_of_a(const GemmSpec& s, const BFloat16* a, std::int64_t row, std::int64_t step,
                                std::int64_t used, std::byte* to) {
  const BFloat16* const from = a + step * kStep * s.lda + row;
  const std::int64_t left = s.k - step * kStep;
  const std::int64_t ahead = left >= 2 * kStep ? kStep * s.lda : 0;
  const __mmask16 rows = first_16(used);
  __m512i lines[16];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < 16; ++i) {
    const BFloat16* const at = from + 2 * i * s.lda;
    _mm_prefetch(at + ahead, _MM_HINT_T0);
    _mm_prefetch(at + ahead + s.lda, _MM_HINT_T0);
    const auto even = static_cast<__mmask16>(2 * i < left ? rows : 0);
    const auto odd = static_cast<__mmask16>(2 * i + 1 < left ? rows : 0);
    const __m512i low = _mm512_maskz_cvtepu16_epi32(kAll16, _mm256_maskz_loadu_epi16(even, at));
    const __m512i high = _mm512_maskz_cvtepu16_epi32(kAll16, _mm256_maskz_loadu_epi16(odd, at + s.lda));
    lines[i] = _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll16, high, 16));
  }
  transpose_lines(lines);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < 16; ++i)
    if (i < used) _mm512_store_si512(to + i * kLine, lines[i]);
}

// a[k,m] to lines of rows. A block has its rows of the first step, then those of the next.
void pack_a(const GemmSpec& s, const BFloat16* a, std::byte* to) {
  const std::int64_t steps = steps_of(s);
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t row = 0; row < s.m; row += 16) {
      const std::int64_t block = row / kBlock * kBlock;
      const std::int64_t line = block * steps + step * std::min(kBlock, s.m - block) + (row - block);
      pack_rows_of_a(s, a, row, step, std::min<std::int64_t>(16, s.m - row), to + line * kLine);
    }
}

// The last, short step of rows of a[m,k], as lines that end in zeros.
TRIREME_AMX void copy_ends(const GemmSpec& s, const BFloat16* a, std::int64_t rows, std::byte* to) {
  const std::int64_t from = s.k / kStep * kStep;
  const __mmask32 elements = first_32(s.k - from);
  for (std::int64_t i = 0; i < rows; ++i)
    _mm512_store_si512(to + i * kLine, _mm512_maskz_loadu_epi16(elements, a + i * s.lda + from));
}

// Rows of a as tiles read them.
struct AmxRows {
  const std::byte* at = nullptr;
  std::int64_t apart = 0;          // bytes from a row to the next
  std::int64_t step = 0;           // and from a step to the next
  const std::byte* end = nullptr;  // the last step, where it is short
};

// Tiles 0 … 3 are sums (2 and 3 of the second 16 rows, 1 and 3 of the second 16 columns), 4 and 5 are of a, 6 and 7 of
// b.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t line_bytes[16] = {};
  std::uint8_t rows[16] = {};

  explicit TileShapes(std::int64_t block_rows) {
    const auto upper = static_cast<std::uint8_t>(std::min<std::int64_t>(block_rows, 16));
    const auto lower = static_cast<std::uint8_t>(block_rows - upper);
    const std::uint8_t rows_of[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int i = 0; i < 8; ++i) {
      rows[i] = rows_of[i];
      line_bytes[i] = rows_of[i] > 0 ? kLine : 0;
    }
  }
};
static_assert(sizeof(TileShapes) == 64);

template <int Down, int Across>
TRIREME_AMX inline void multiply_tiles(const std::byte* a, std::int64_t apart, const std::byte* b) {
  _tile_loadd(6, b, kLine);
  _tile_loadd(4, a, apart);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (Down == 2) {
    _tile_loadd(5, a + 16 * apart, apart);
    _tile_dpbf16ps(2, 5, 6);
  }
  if constexpr (Across == 2) {
    _tile_loadd(7, b + kTile, kLine);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (Down == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

// The sums of a block, with `apart` bytes from a row to the next.
template <int Down, int Across>
TRIREME_AMX void sum_block(const AmxRows& a, const std::byte* b, std::int64_t steps, std::byte* sums,
                           std::int64_t apart) {
  _tile_zero(0);
  if constexpr (Across == 2) _tile_zero(1);
  if constexpr (Down == 2) _tile_zero(2);
  if constexpr (Down == 2 && Across == 2) _tile_zero(3);
  const std::byte* at = a.at;
  for (std::int64_t i = 0; i < steps; ++i, at += a.step, b += Across * kTile)
    multiply_tiles<Down, Across>(at, a.apart, b);
  if (a.end != nullptr) multiply_tiles<Down, Across>(a.end, kLine, b);
  _tile_stored(0, sums, apart);
  if constexpr (Across == 2) _tile_stored(1, sums + kLine, apart);
  if constexpr (Down == 2) _tile_stored(2, sums + 16 * apart, apart);
  if constexpr (Down == 2 && Across == 2) _tile_stored(3, sums + 16 * apart + kLine, apart);
}

// A block of staged sums to c, added or rounded.
TRIREME_AMX void put_sums(const GemmSpec& s, const float* sums, std::int64_t rows, std::int64_t columns,
                          std::int64_t at, void* c) {
  for (std::int64_t i = 0; i < rows; ++i, at += s.ldc, sums += kBlock)
    for (std::int64_t j = 0; j < columns; j += 16) {
      const __mmask16 used = first_16(columns - j);
      __m512 line = _mm512_load_ps(sums + j);
      if (s.output == DType::bf16) {
        _mm256_mask_storeu_epi16(static_cast<BFloat16*>(c) + at + j, used,
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(line)));
        continue;
      }
      float* const to = static_cast<float*>(c) + at + j;
      if (s.accumulate) line = _mm512_add_ps(_mm512_maskz_loadu_ps(used, to), line);
      _mm512_mask_storeu_ps(to, used, line);
    }
}

// A block of c, whose first element is at `at`.
TRIREME_AMX void multiply_block(const GemmSpec& s, AmxRows a, std::int64_t rows, const std::byte* b,
                                std::int64_t columns, std::int64_t at, void* c) {
  alignas(64) float staged[kBlock * kBlock];
  const std::int64_t steps = steps_of(s) - (a.end != nullptr ? 1 : 0);
  const bool wide = columns > 16;
  const bool direct = s.output == DType::f32 && !s.accumulate && columns % 16 == 0;
  std::byte* const sums =
      direct ? reinterpret_cast<std::byte*>(static_cast<float*>(c) + at) : reinterpret_cast<std::byte*>(staged);
  const std::int64_t apart = direct ? s.ldc * 4 : kBlock * 4;
  // The sums are added to c when they are done: it is read from afar meanwhile.
  if (s.accumulate)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; j += 16)
        _mm_prefetch(static_cast<const float*>(c) + at + i * s.ldc + j, _MM_HINT_T0);
  if (rows > 16)
    (wide ? sum_block<2, 2> : sum_block<2, 1>)(a, b, steps, sums, apart);
  else
    (wide ? sum_block<1, 2> : sum_block<1, 1>)(a, b, steps, sums, apart);
  if (!direct) put_sums(s, staged, rows, columns, at, c);
}

// Rows of a, at most kChunk of them; `top` is their first.
TRIREME_AMX void multiply_rows(const GemmSpec& s, const BFloat16* a, const std::byte* packed_a, const void* b,
                               std::byte* room, std::int64_t top, void* c) {
  alignas(64) std::byte ends[kChunk * kLine];
  const std::int64_t steps = steps_of(s);
  const std::int64_t bottom = std::min(s.m, top + kChunk);
  const bool short_end = !s.trans_a && s.k % kStep != 0;
  if (short_end) copy_ends(s, a + top * s.lda, bottom - top, ends);
  std::int64_t configured = 0;
  for (std::int64_t column = 0; column < s.n; column += kBlock) {
    const std::int64_t columns = std::min(kBlock, s.n - column);
    const std::byte* tiles = room;
    if (s.packed_b)
      tiles = static_cast<const std::byte*>(b) + column / 16 * steps * kTile;
    else
      pack_steps(s, static_cast<const BFloat16*>(b), column, 0, steps, room);
    finish_stores();
    for (std::int64_t row = top; row < bottom; row += kBlock) {
      const std::int64_t rows = std::min(kBlock, bottom - row);
      if (rows != configured) {
        const TileShapes shapes(rows);
        finish_stores();
        _tile_loadconfig(&shapes);
        configured = rows;
      }
      AmxRows from;
      if (s.trans_a)
        from = {packed_a + row * steps * kLine, kLine, rows * kLine, nullptr};
      else
        from = {reinterpret_cast<const std::byte*>(a + row * s.lda), s.lda * 2, kLine,
                short_end ? ends + (row - top) * kLine : nullptr};
      multiply_block(s, from, rows, tiles, columns, row * s.ldc + column, c);
    }
  }
  _tile_release();
}

}  // namespace

void AmxGemm::pack(std::int64_t part, const void* b, void* packed) const {
  const std::int64_t steps = steps_of(spec_);
  const std::int64_t begin = part * kSteps;
  for (std::int64_t column = 0; column < spec_.n; column += kBlock)
    pack_steps(spec_, static_cast<const BFloat16*>(b), column, begin, std::min(steps, begin + kSteps),
               static_cast<std::byte*>(packed) + column / 16 * steps * kTile);
}

void AmxGemm::run(const void* a, const void* b, void* c, void* scratch) const {
  auto* const room = static_cast<std::byte*>(scratch);
  const auto* const elements = static_cast<const BFloat16*>(a);
  if (spec_.trans_a) pack_a(spec_, elements, room);
  for (std::int64_t top = 0; top < spec_.m; top += kChunk)
    multiply_rows(spec_, elements, room, b, room + packed_a_bytes(spec_), top, c);
}

#else

bool amx_usable() { return false; }
void AmxGemm::pack(std::int64_t, const void*, void*) const { fail("this CPU has no tile instructions"); }
void AmxGemm::run(const void*, const void*, void*, void*) const { fail("this CPU has no tile instructions"); }

#endif

}  // namespace trireme::device::cpu
