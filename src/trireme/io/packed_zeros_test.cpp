#include "trireme/io/packed_zeros.h"

#include <gtest/gtest.h>

namespace trireme::io {
namespace {

TEST(PackedZeros, ComeBackAsTheyWere) {
  for (const std::size_t n : {1, 7, 8, 9, 64, 1000})
    for (const std::size_t every : {2, 3, 10}) {
      std::vector<float> values(n, 0);
      for (std::size_t i = 0; i < n; i += every) values[i] = static_cast<float>(i) - 3.5F;
      const auto packed = pack_zeros(values);
      if (!packed) continue;
      EXPECT_LT(packed->size(), n * sizeof(float));
      std::vector<float> again(n, 9);
      ASSERT_TRUE(unpack_zeros(*packed, again));
      EXPECT_EQ(again, values);
      EXPECT_FALSE(unpack_zeros(std::span(*packed).first(packed->size() - 1), again));
    }
}

TEST(PackedZeros, TwoOfFourTakeLittleMoreThanHalf) {
  std::vector<float> values(4096, 0);
  for (std::size_t i = 0; i < values.size(); i += 4) values[i] = values[i + 2] = 1;
  EXPECT_EQ(pack_zeros(values)->size(), 4096 / 2 * sizeof(float) + 4096 / 8);
}

TEST(PackedZeros, NothingIsPackedThatWouldGrow) { EXPECT_FALSE(pack_zeros(std::vector<float>(100, 1.0F))); }

TEST(PackedZeros, OtherBytesAreRefused) {
  std::vector<float> values(16, 0);
  std::vector<std::byte> bytes(2 + sizeof(float), std::byte{0});
  EXPECT_FALSE(unpack_zeros(bytes, values));  // no bit, and an element
  bytes[0] = std::byte{4};
  EXPECT_TRUE(unpack_zeros(bytes, values));
  bytes[1] = std::byte{4};
  bytes.resize(2 + 2 * sizeof(float));
  EXPECT_FALSE(unpack_zeros(bytes, std::span(values).first(10)));  // a bit behind the last element
}

}  // namespace
}  // namespace trireme::io
