#include "trireme/device/cpu/onednn.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace trireme::device::cpu {
namespace {

// 64-byte aligned, with bytes behind it that nobody may touch.
class Room {
 public:
  explicit Room(std::size_t bytes) : bytes_(bytes), data_(std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free) {
    for (std::size_t i = 0; i < 64; ++i) guard()[i] = kGuard;
  }
  void* data() const { return data_.get(); }
  bool intact() const {
    for (std::size_t i = 0; i < 64; ++i)
      if (guard()[i] != kGuard) return false;
    return true;
  }

 private:
  static constexpr std::byte kGuard{0x5a};
  std::byte* guard() const { return static_cast<std::byte*>(data_.get()) + bytes_; }
  std::size_t bytes_;
  std::unique_ptr<void, decltype(&std::free)> data_;
};

float sample(std::size_t i) { return static_cast<float>(i * 7919 % 253) / 128.0F - 1.0F; }

template <class In, class Out>
void check(const GemmSpec& s) {
  SCOPED_TRACE(fmt::format("{}x{}x{} trans {} {} ld {} {} {} {}->{} accumulate {} packed {}", s.m, s.n, s.k, s.trans_a,
                           s.trans_b, s.lda, s.ldb, s.ldc, name_of(s.input), name_of(s.output), s.accumulate,
                           s.packed_b));
  std::vector<In> a(static_cast<std::size_t>((s.trans_a ? s.k : s.m) * s.lda));
  std::vector<In> b(static_cast<std::size_t>((s.trans_b ? s.n : s.k) * s.ldb));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = In(sample(i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = In(sample(i + 101));
  const std::vector<Out> before(static_cast<std::size_t>(s.m * s.ldc), Out(0.5F));
  std::vector<Out> c = before;

  const Gemm gemm(s, 2);
  const Room scratch(Gemm::scratch_bytes(s));
  const Room packed(s.packed_b ? Gemm::packed_bytes(s) : 0);
  if (s.packed_b)
    for (std::int64_t part = gemm.parts(); part-- > 0;)
      gemm.pack(static_cast<int>(part % 2), part, b.data(), packed.data());
  gemm.run(1, a.data(), s.packed_b ? packed.data() : b.data(), c.data(), scratch.data());
  EXPECT_TRUE(scratch.intact());
  EXPECT_TRUE(packed.intact());

  double difference = 0;
  double norm = 0;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.ldc; ++j) {
      const auto at = static_cast<std::size_t>(i * s.ldc + j);
      const double got = static_cast<double>(static_cast<float>(c[at]));
      if (j >= s.n) {
        EXPECT_EQ(got, 0.5) << "written past the columns";
        continue;
      }
      double sum = s.accumulate ? 0.5 : 0.0;
      for (std::int64_t k = 0; k < s.k; ++k)
        sum += static_cast<double>(
                   static_cast<float>(a[static_cast<std::size_t>(s.trans_a ? k * s.lda + i : i * s.lda + k)])) *
               static_cast<double>(
                   static_cast<float>(b[static_cast<std::size_t>(s.trans_b ? j * s.ldb + k : k * s.ldb + j)]));
      difference += (got - sum) * (got - sum);
      norm += sum * sum;
    }
  EXPECT_LE(std::sqrt(difference), (s.output == DType::f32 ? 2e-6 : 4e-3) * std::sqrt(norm));
}

TEST(OneDnn, GemmOfAnyLayout) {
  struct Size {
    std::int64_t m, n, k, extra;  // `extra` columns between rows
  };
  for (const Size size :
       {Size{1, 1, 1, 0}, Size{1, 1, 1, 3}, Size{33, 17, 65, 0}, Size{33, 17, 65, 5}, Size{7, 3, 300, 2},
        Size{64, 64, 64, 36}, Size{100, 200, 300, 0}, Size{3, 130, 600, 8}, Size{200, 64, 129, 0}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        for (const bool packed : {false, true}) {
          GemmSpec s{.m = size.m, .n = size.n, .k = size.k, .trans_a = trans_a, .trans_b = trans_b, .packed_b = packed};
          s.lda = (trans_a ? s.m : s.k) + size.extra;
          s.ldb = (trans_b ? s.k : s.n) + size.extra;
          s.ldc = s.n + size.extra;
          for (const bool accumulate : {false, true}) {
            s.accumulate = accumulate;
            s.input = DType::f32;
            check<float, float>(s);
            s.input = DType::bf16;
            check<BFloat16, float>(s);
          }
          s.accumulate = false;
          s.output = DType::bf16;
          check<BFloat16, BFloat16>(s);
        }
}

// Of one product made again and again while SIGUSR2 comes every few microseconds.
int wrong_sums(const GemmSpec& spec) {
  const std::vector<float> a(static_cast<std::size_t>(spec.m * spec.k), 0.5F);
  const std::vector<float> b(static_cast<std::size_t>(spec.k * spec.n), 0.25F);
  std::vector<float> c(static_cast<std::size_t>(spec.m * spec.n));
  const Gemm gemm(spec, 1);
  const Room scratch(Gemm::scratch_bytes(spec));
  std::atomic<bool> over = false;
  std::atomic<int> sent = 0;
  std::thread sender([&, to = pthread_self()] {
    while (!over) {
      if (pthread_kill(to, SIGUSR2) == 0) ++sent;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  const float expected = 0.125F * static_cast<float>(spec.k);
  std::int64_t wrong = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(60) || sent < 500) {
    std::fill(c.begin(), c.end(), -1.0F);
    gemm.run(0, a.data(), b.data(), c.data(), scratch.data());
    wrong += std::count_if(c.begin(), c.end(), [&](float sum) { return sum != expected; });
  }
  over = true;
  sender.join();
  return static_cast<int>(wrong);
}

// The user's signals come at any moment, and to any thread.
TEST(OneDnn, SignalsLeaveAProductAsItIs) {
  struct sigaction handled = {};
  handled.sa_handler = [](int) {};
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGUSR2, &handled, &before), 0);
  // The library takes one of several kinds of product for each.
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const auto& [m, n, k] : {std::array{200, 300, 400}, std::array{33, 47, 1000}, std::array{8, 300, 4000}})
        EXPECT_EQ(wrong_sums({.m = m,
                              .n = n,
                              .k = k,
                              .trans_a = trans_a,
                              .trans_b = trans_b,
                              .lda = trans_a ? m : k,
                              .ldb = trans_b ? k : n,
                              .ldc = n}),
                  0)
            << m << " " << n << " " << k << " " << trans_a << trans_b;
  sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace trireme::device::cpu
