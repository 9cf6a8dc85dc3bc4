#include "trireme/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace trireme {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers published with Random123 for philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, FillGivesTheWordsOfEachQuad) {
  const RandomStream stream{3, site_of("blocks.0.dropout"), 17};
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{0xfffffffa}})
    for (const std::size_t quads : {1, 3, 16, 17, 40}) {
      std::vector<std::uint32_t> out(quads * 4);
      stream.fill(0x123456789abcULL, first, out);
      for (std::size_t q = 0; q < quads; ++q) {
        const Words expected = stream.words(0x123456789abcULL, first + q);
        for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(out[q * 4 + i], expected[i]) << "quad " << q << " of " << quads;
      }
    }
}

TEST(RandomStream, EveryPartOfTheKeyMatters) {
  std::set<Words> seen;
  for (const std::uint64_t seed : {1, 2})
    for (const std::uint64_t site : {1, 2})
      for (const std::uint64_t step : {1, 2})
        for (const std::uint64_t row : {1, 2})
          for (const std::uint64_t quad : {1, 2}) seen.insert(RandomStream{seed, site, step}.words(row, quad));
  EXPECT_EQ(seen.size(), 32U);
}

TEST(RandomStream, UnitNumbersAreEven) {
  const RandomStream stream{1, 2, 3};
  std::array<int, 16> bins{};
  constexpr int kQuads = 40000;
  for (std::uint64_t quad = 0; quad < kQuads; ++quad)
    for (const std::uint32_t word : stream.words(0, quad)) {
      const float u = to_unit(word);
      ASSERT_TRUE(u >= 0 && u < 1);
      ++bins[static_cast<std::size_t>(u * 16)];
    }
  // 10,000 expected in each with a deviation of 97.
  for (const int bin : bins) EXPECT_NEAR(bin, 10000, 500);
}

TEST(RandomStream, NormalNumbersHaveTheirMoments) {
  const RandomStream stream{1, 2, 3};
  double sum = 0, square = 0, fourth = 0, product = 0;
  constexpr int kQuads = 50000;
  for (std::uint64_t quad = 0; quad < kQuads; ++quad) {
    const Words words = stream.words(0, quad);
    const auto [a, b] = to_normal(words[0], words[1]);
    ASSERT_TRUE(std::isfinite(a) && std::isfinite(b));
    for (const double v : {a, b}) {
      sum += v;
      square += v * v;
      fourth += v * v * v * v;
    }
    product += static_cast<double>(a) * b;
  }
  EXPECT_NEAR(sum / (2 * kQuads), 0, 0.02);
  EXPECT_NEAR(square / (2 * kQuads), 1, 0.03);
  EXPECT_NEAR(fourth / (2 * kQuads), 3, 0.2);
  EXPECT_NEAR(product / kQuads, 0, 0.03);
  EXPECT_TRUE(std::isfinite(to_normal(0, 0)[0]));
}

TEST(SiteOf, IsStable) {
  EXPECT_EQ(site_of("blocks.0.attn.dropout"), site_of("blocks.0.attn.dropout"));
  EXPECT_NE(site_of("blocks.0.attn.dropout"), site_of("blocks.1.attn.dropout"));
  EXPECT_NE(site_of(""), site_of("a"));
}

}  // namespace
}  // namespace trireme
