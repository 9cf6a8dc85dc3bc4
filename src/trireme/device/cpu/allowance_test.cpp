#include "trireme/device/cpu/allowance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace trireme::device::cpu {
namespace {

// Sizes as they occur: any, whole blocks of the library, and small ones.
class Sizes {
 public:
  std::int64_t below(std::int64_t most) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most)); }
  bool flip() { return below(2) == 1; }
  std::int64_t of(const std::vector<std::int64_t>& choices) {
    return choices[static_cast<std::size_t>(below(std::ssize(choices)))];
  }
  std::int64_t up_to(std::int64_t most) {
    const std::int64_t block = of({1, 16, 64});
    if (block == 1 && flip()) most = std::min<std::int64_t>(most, 70);
    return std::min(most, block * (1 + below((most + block - 1) / block)));
  }

 private:
  std::uint64_t next() { return state_ = state_ * 6364136223846793005U + 1442695040888963407U, state_ >> 20; }
  std::uint64_t state_ = 7;
};

std::string text(const GemmSpec& s) {
  return fmt::format("{}x{}x{} trans {} {} {}->{} accumulate {} packed {}", s.m, s.n, s.k, s.trans_a, s.trans_b,
                     name_of(s.input), name_of(s.output), s.accumulate, s.packed_b);
}

// The tiles of matmul, of the loss and of quantised products, and larger ones. Rows of a transposed a are cut.
GemmSpec some_gemm(Sizes& sizes) {
  GemmSpec s;
  s.trans_a = sizes.flip();
  s.trans_b = sizes.flip();
  s.packed_b = sizes.flip();
  s.accumulate = sizes.flip();
  if (sizes.flip()) {
    s.input = DType::bf16;
    if (!s.accumulate && sizes.flip()) s.output = DType::bf16;
  }
  s.m = sizes.up_to(sizes.of({128, 512}));
  s.n = sizes.up_to(sizes.of({128, 2048, 4096}));
  s.k = sizes.up_to(s.trans_a ? 512 : sizes.of({512, 4096, 20000}));
  const std::int64_t apart = sizes.of({0, 0, 3});
  s.lda = (s.trans_a ? s.m : s.k) + apart;
  s.ldb = (s.trans_b ? s.k : s.n) + apart;
  s.ldc = s.n + apart;
  return s;
}

// Convolutions without groups, as convolutional networks have them.
ConvSpec some_conv(Sizes& sizes) {
  ConvSpec s;
  s.pass = static_cast<ConvSpec::Pass>(sizes.below(3));
  s.n = s.layout_n = sizes.of({1, 2, 4, 8});
  s.c = sizes.flip() ? sizes.of({1, 3, 16, 64, 128, 256, 512}) : 1 + sizes.below(100);
  s.k = sizes.flip() ? sizes.of({16, 32, 64, 128, 256, 512}) : 1 + sizes.below(100);
  s.r = s.s = sizes.of({1, 3, 3, 5, 7});
  s.h = s.w = sizes.of({7, 8, 14, 16, 28, 32, 56});
  s.stride[0] = s.stride[1] = sizes.of({1, 1, 2});
  s.padding.fill((s.r - 1) / 2);
  s.padding_after = s.padding;
  s.p = s.q = (s.h + 2 * s.padding[0] - s.r) / s.stride[0] + 1;
  if (sizes.flip()) s.dtype = DType::bf16;
  s.bias = s.pass == ConvSpec::Pass::forward && sizes.flip();
  return s;
}

TEST(Allowance, CoversEveryProduct) {
  Sizes sizes;
  for (int i = 0; i < 4000; ++i) {
    const GemmSpec s = some_gemm(sizes);
    const Gemm::Wanted wanted = Gemm::wanted(s);
    ASSERT_LE(wanted.scratch, Gemm::scratch_bytes(s)) << text(s);
    ASSERT_LE(wanted.packed, Gemm::packed_bytes(s)) << text(s);
  }
}

TEST(Allowance, CoversConvolutionsWithDirectKernels) {
  Sizes sizes;
  int more = 0;
  constexpr int kShapes = 3000;
  for (int i = 0; i < kShapes; ++i) {
    const ConvSpec s = some_conv(sizes);
    const Conv::Bytes wanted = Conv::wanted(s);
    const Conv::Bytes given = Conv::bytes(s);
    ASSERT_LE(wanted.packed, given.packed) << s.c << " to " << s.k << ", window " << s.r;
    ASSERT_LE(wanted.pack_scratch, given.pack_scratch);
    more += wanted.scratch > given.scratch ? 1 : 0;
  }
  // The library multiplies matrices of whole windows instead where it has no other kernel: seldom from AVX2 on.
  const char* set = std::getenv("ONEDNN_MAX_CPU_ISA");
  const bool oldest = set != nullptr && std::string_view(set) == "SSE41";
  EXPECT_LT(more, oldest ? kShapes : kShapes / 10);
}

// The bounds are worth little if they are far: what matmul packs, and the networks' own layers.
TEST(Allowance, IsCloseWhereItMatters) {
  for (const std::int64_t n : {64, 768, 1000, 2048})
    for (const std::int64_t k : {64, 65, 768, 3072}) {
      const GemmSpec s{.m = 128, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .packed_b = true};
      EXPECT_LE(Gemm::packed_bytes(s), static_cast<std::size_t>((n + 63) * (k + 15)) * sizeof(float));
      EXPECT_EQ(Gemm::scratch_bytes(s), 640U);
    }
  ConvSpec s{.n = 1, .h = 14, .w = 14, .c = 256, .k = 256, .r = 3, .s = 3, .p = 14, .q = 14};
  s.padding = s.padding_after = {1, 1};
  for (const auto pass : {ConvSpec::Pass::forward, ConvSpec::Pass::input_gradient, ConvSpec::Pass::weight_gradient}) {
    s.pass = pass;
    EXPECT_EQ(Conv::bytes(s).packed, 256U * 256 * 9 * sizeof(float));
    EXPECT_EQ(Conv::bytes(s).scratch, pass == ConvSpec::Pass::forward ? 16384U : 0U);
  }
}

// The same for the instruction sets of older CPUs; each needs a process of its own. A CPU that lacks one takes its
// best.
TEST(Allowance, CoversOlderInstructionSets) {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) GTEST_SKIP() << "one set was asked for";
  for (const char* set : {"SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16"}) {
    const std::string command = fmt::format(
        "ONEDNN_MAX_CPU_ISA={} /proc/{}/exe --gtest_filter=Allowance.Covers*:OneDnn.* > /dev/null", set, ::getpid());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace trireme::device::cpu
