#include "trireme/device/cpu/amx.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace trireme::device::cpu {
namespace {

// Bytes that end where a page ends; the next one may be neither read nor written. All are 0xff at first, which is not a
// number in any type. Tile loads and stores are seen by no sanitizer.
class FencedRoom {
 public:
  explicit FencedRoom(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t pages = (bytes + page - 1) / page * page;
    whole_ = pages + page;
    start_ = ::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(start_, MAP_FAILED);
    EXPECT_EQ(::mprotect(static_cast<std::byte*>(start_) + pages, page, PROT_NONE), 0);
    std::memset(start_, 0xff, pages);
    data_ = static_cast<std::byte*>(start_) + (pages - bytes);
  }
  ~FencedRoom() { ::munmap(start_, whole_); }
  FencedRoom(const FencedRoom&) = delete;
  FencedRoom& operator=(const FencedRoom&) = delete;

  template <class T = std::byte>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void* start_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t whole_ = 0;
};

class AmxSizes {
 public:
  std::int64_t up_to(std::int64_t limit) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return 1 + static_cast<std::int64_t>((state_ >> 33U) % static_cast<std::uint64_t>(limit));
  }
  bool flip() { return up_to(2) == 1; }

 private:
  std::uint64_t state_ = 11;
};

// Any bf16 between -1 and 1 with all bits of the mantissa in use.
BFloat16 element(std::int64_t i) {
  const auto hash = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U;
  return BFloat16(static_cast<float>(static_cast<std::int64_t>(hash >> 40U) - (1 << 23)) / static_cast<float>(1 << 23));
}
BFloat16 a_at(std::int64_t row, std::int64_t k) { return element(row * 100'003 + k); }
BFloat16 b_at(std::int64_t k, std::int64_t column) { return element(column * 99'991 + k + 7'000'000); }

std::size_t bytes_between(std::int64_t rows, std::int64_t columns, std::int64_t apart, DType dtype) {
  return static_cast<std::size_t>((rows - 1) * apart + columns) * size_of(dtype);
}

// The operands of a product, as its layouts want them: rows `row`… of a, columns `column`… of b.
struct AmxOperands {
  AmxOperands(const GemmSpec& spec, std::int64_t row = 0, std::int64_t column = 0)
      : s(spec),
        a(bytes_between(s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.input)),
        b(bytes_between(s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.input)),
        packed(s.packed_b ? Gemm::packed_bytes(s) : 0) {
    for (std::int64_t k = 0; k < s.k; ++k) {
      for (std::int64_t i = 0; i < s.m; ++i)
        a.as<BFloat16>()[s.trans_a ? k * s.lda + i : i * s.lda + k] = a_at(row + i, k);
      for (std::int64_t j = 0; j < s.n; ++j)
        b.as<BFloat16>()[s.trans_b ? j * s.ldb + k : k * s.ldb + j] = b_at(k, column + j);
    }
  }

  // c must have been filled in.
  void multiply(const AmxGemm& gemm, const FencedRoom& c) const {
    const FencedRoom scratch(Gemm::scratch_bytes(s));
    gemm.run(a.as(), s.packed_b ? packed.as() : b.as(), c.as(), scratch.as());
  }
  void pack(const AmxGemm& gemm) const {
    if (s.packed_b)
      for (std::int64_t part = gemm.parts(); part-- > 0;) gemm.pack(part, b.as(), packed.as());
  }

  GemmSpec s;
  FencedRoom a, b, packed;
};

GemmSpec with_strides(GemmSpec s, std::int64_t extra) {
  s.input = DType::bf16;
  s.lda = (s.trans_a ? s.m : s.k) + extra;
  s.ldb = (s.trans_b ? s.k : s.n) + extra;
  s.ldc = s.n + extra;
  return s;
}

float start_of(std::int64_t i, std::int64_t j) { return 0.25F * static_cast<float>((i + 3 * j) % 7); }

template <class Out>
void fill(const GemmSpec& s, Out* c) {
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < (i + 1 < s.m ? s.ldc : s.n); ++j) c[i * s.ldc + j] = Out(start_of(i, j));
}

// Against sums in f64. An f32 sum of k products is off by at most k roundings of the sum of their magnitudes; bf16
// rounds once more.
template <class Out>
void check_product(const GemmSpec& s) {
  SCOPED_TRACE(fmt::format("{}x{}x{} trans {} {} ld {} {} {} {} accumulate {} packed {}", s.m, s.n, s.k, s.trans_a,
                           s.trans_b, s.lda, s.ldb, s.ldc, name_of(s.output), s.accumulate, s.packed_b));
  const AmxOperands operands(s);
  const FencedRoom room(bytes_between(s.m, s.n, s.ldc, s.output));
  Out* const c = room.as<Out>();
  fill(s, c);
  const AmxGemm gemm(s);
  operands.pack(gemm);
  operands.multiply(gemm, room);

  std::vector<double> a(static_cast<std::size_t>(s.m * s.k));
  std::vector<double> b(static_cast<std::size_t>(s.n * s.k));
  for (std::int64_t k = 0; k < s.k; ++k) {
    for (std::int64_t i = 0; i < s.m; ++i)
      a[static_cast<std::size_t>(i * s.k + k)] = static_cast<double>(static_cast<float>(a_at(i, k)));
    for (std::int64_t j = 0; j < s.n; ++j)
      b[static_cast<std::size_t>(j * s.k + k)] = static_cast<double>(static_cast<float>(b_at(k, j)));
  }
  int wrong = 0;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < (i + 1 < s.m ? s.ldc : s.n); ++j) {
      const auto got = static_cast<double>(static_cast<float>(c[i * s.ldc + j]));
      const auto before = static_cast<double>(static_cast<float>(Out(start_of(i, j))));
      if (j >= s.n) {
        ASSERT_EQ(got, before) << "written past the columns";
        continue;
      }
      double sum = s.accumulate ? before : 0;
      double size = std::abs(sum);
      for (std::int64_t k = 0; k < s.k; ++k) {
        const double product = a[static_cast<std::size_t>(i * s.k + k)] * b[static_cast<std::size_t>(j * s.k + k)];
        sum += product;
        size += std::abs(product);
      }
      double limit = size * static_cast<double>(s.k + 1) * std::numeric_limits<float>::epsilon() / 2;
      if (s.output == DType::bf16) limit += std::abs(sum) / 256;
      if (!(std::abs(got - sum) <= limit) && ++wrong <= 5)
        ADD_FAILURE() << got << " at " << i << ", " << j << ", expected " << sum << " within " << limit;
    }
  EXPECT_EQ(wrong, 0);
}

void check_product(const GemmSpec& s) {
  if (s.output == DType::f32)
    check_product<float>(s);
  else
    check_product<BFloat16>(s);
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx_usable()) GTEST_SKIP() << "this CPU has no AMX, or the kernel does not grant it";
  }
};

TEST_F(Amx, ProductsOfAnySizeAndLayout) {
  AmxSizes sizes;
  for (int i = 0; i < 600; ++i) {
    GemmSpec s{.m = sizes.up_to(130), .n = sizes.up_to(130), .k = sizes.up_to(130)};
    s.trans_a = sizes.flip();
    s.trans_b = sizes.flip();
    s.packed_b = sizes.flip();
    s.accumulate = sizes.flip();
    if (!s.accumulate && sizes.flip()) s.output = DType::bf16;
    check_product(with_strides(s, sizes.flip() ? 0 : sizes.up_to(40)));
  }
}

TEST_F(Amx, LargeProductsInEveryLayout) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size size : {Size{128, 256, 512}, Size{600, 80, 100}, Size{33, 48, 4096}, Size{17, 31, 5001}})
    for (int layout = 0; layout < 8; ++layout) {
      GemmSpec s{.m = size.m, .n = size.n, .k = size.k};
      s.trans_a = (layout & 1) != 0;
      s.trans_b = (layout & 2) != 0;
      s.packed_b = (layout & 4) != 0;
      s.accumulate = layout % 3 == 0;
      if (layout % 3 == 1) s.output = DType::bf16;
      s.input = DType::bf16;
      EXPECT_EQ(AmxGemm::takes(s), s.packed_b || s.k <= 4096);
      if (AmxGemm::takes(s)) check_product(with_strides(s, layout % 2 == 0 ? 0 : 24));
    }
}

// The room that callers give, which onednn.h finds from the shape alone, was enough for all of the above.
TEST_F(Amx, TakesTheRoomOfItsTiles) {
  GemmSpec s = with_strides({.m = 40, .n = 40, .k = 65, .trans_a = true}, 0);
  EXPECT_EQ(AmxGemm::packed_bytes(s), 3U * 3 * 1024);
  EXPECT_EQ(AmxGemm::scratch_bytes(s), 40U * 3 * 64 + 3 * 2 * 1024);
  s.packed_b = true;
  s.trans_a = false;
  EXPECT_EQ(AmxGemm::scratch_bytes(s), 0U);
}

// Callers cut products into blocks as threads and sizes have it.
TEST_F(Amx, BitsOfASumDependOnItsOperandsAlone) {
  const GemmSpec whole = with_strides({.m = 77, .n = 93, .k = 331}, 0);
  const AmxOperands operands(whole);
  const FencedRoom c(bytes_between(whole.m, whole.n, whole.ldc, DType::f32));
  operands.multiply(AmxGemm(whole), c);
  AmxSizes sizes;
  for (int i = 0; i < 100; ++i) {
    GemmSpec s = whole;
    const std::int64_t row = sizes.up_to(whole.m) - 1;
    const std::int64_t column = sizes.up_to(whole.n) - 1;
    s.m = sizes.up_to(whole.m - row);
    s.n = sizes.up_to(whole.n - column);
    s.trans_a = sizes.flip();
    s.trans_b = sizes.flip();
    s.packed_b = sizes.flip();
    s.accumulate = sizes.flip();
    s = with_strides(s, sizes.up_to(5) - 1);
    const AmxOperands part(s, row, column);
    const FencedRoom room(bytes_between(s.m, s.n, s.ldc, DType::f32));
    std::memset(room.as(), 0, bytes_between(s.m, s.n, s.ldc, DType::f32));
    const AmxGemm gemm(s);
    part.pack(gemm);
    part.multiply(gemm, room);
    for (std::int64_t y = 0; y < s.m; ++y)
      for (std::int64_t x = 0; x < s.n; ++x)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(room.as<float>()[y * s.ldc + x]),
                  std::bit_cast<std::uint32_t>(c.as<float>()[(row + y) * whole.ldc + column + x]))
            << row + y << ", " << column + x << " in a block of " << s.m << " by " << s.n;
  }
}

TEST_F(Amx, ThreadsShareAProduct) {
  const GemmSpec s = with_strides({.m = 100, .n = 200, .k = 300, .trans_a = true, .packed_b = true}, 3);
  const AmxOperands operands(s);
  const std::size_t bytes = bytes_between(s.m, s.n, s.ldc, DType::f32);
  constexpr int kWorkers = 6;
  const AmxGemm gemm(s);
  operands.pack(gemm);
  const FencedRoom alone(bytes);
  std::memset(alone.as(), 0, bytes);
  operands.multiply(gemm, alone);
  std::vector<int> different(kWorkers, 0);
  std::vector<std::thread> threads;
  threads.reserve(kWorkers);
  for (int worker = 0; worker < kWorkers; ++worker)
    threads.emplace_back([&, worker] {
      const FencedRoom scratch(Gemm::scratch_bytes(s));
      const FencedRoom c(bytes);
      for (int i = 0; i < 50; ++i) {
        std::memset(c.as(), 0, bytes);
        gemm.run(operands.a.as(), operands.packed.as(), c.as(), scratch.as());
        different[static_cast<std::size_t>(worker)] += std::memcmp(c.as(), alone.as(), bytes) != 0 ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, std::vector<int>(kWorkers, 0));
}

// Infinities and what is not a number stay so in their own rows and columns, whatever the padding.
TEST_F(Amx, PaddingIsZero) {
  const GemmSpec s = with_strides({.m = 20, .n = 20, .k = 33}, 0);
  const AmxOperands operands(s);
  operands.a.as<BFloat16>()[3 * s.lda + 32] = BFloat16(std::numeric_limits<float>::infinity());
  operands.b.as<BFloat16>()[32 * s.ldb + 5] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const FencedRoom c(bytes_between(s.m, s.n, s.ldc, DType::f32));
  operands.multiply(AmxGemm(s), c);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      const float sum = c.as<float>()[i * s.ldc + j];
      EXPECT_EQ(std::isnan(sum), j == 5) << i << ", " << j;
      EXPECT_EQ(std::isinf(sum), i == 3 && j != 5) << i << ", " << j;
    }
}

}  // namespace
}  // namespace trireme::device::cpu
