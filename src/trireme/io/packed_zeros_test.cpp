#include "trireme/io/packed_zeros.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace trireme::io {
namespace {

// All of it, so many bytes at a time.
std::vector<std::byte> packed_by(std::span<const float> values, std::size_t piece) {
  ZeroPacker packer(values);
  std::vector<std::byte> bytes(packer.bytes());
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    packer.read(at, std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
  return bytes;
}

// To the bit: a zero keeps its sign.
void expect_same_bits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

TEST(PackedZeros, ComeBackAsTheyWere) {
  for (const std::size_t n : {1, 7, 8, 9, 64, 1000, 40000})
    for (const std::size_t every : {1, 2, 3, 10})
      for (const float zero : {0.0F, -0.0F}) {
        std::vector<float> values(n, 0);
        std::fill_n(values.begin(), n / 2, zero);
        for (std::size_t i = 0; i < n; i += every) values[i] = static_cast<float>(i) - 3.5F;
        for (const std::size_t piece : {1, 13, 4096, 1 << 20}) {
          if (n > 1000 && piece == 1) continue;
          const std::vector<std::byte> packed = packed_by(values, piece);
          std::vector<float> again(n, 9);
          ASSERT_TRUE(unpack_zeros(packed, again)) << n << " " << every;
          expect_same_bits(again, values);
          if (n > 8) {  // of so few, the bits of the signs are the byte that is missing
            EXPECT_FALSE(unpack_zeros(std::span(packed).first(packed.size() - 1), again));
          }
        }
      }
}

TEST(PackedZeros, TwoOfFourTakeLittleMoreThanHalf) {
  std::vector<float> values(4096, 0);
  for (std::size_t i = 0; i < values.size(); i += 4) values[i] = values[i + 2] = 2;
  EXPECT_EQ(ZeroPacker(values).bytes(), 4096 / 2 * sizeof(float) + 4096 / 8);
  values[1] = -0.0F;  // and a bit for the sign of each zero
  EXPECT_EQ(ZeroPacker(values).bytes(), 4096 / 2 * sizeof(float) + 4096 / 4);
}

// A mask, whatever it leaves.
TEST(PackedZeros, ZerosAndOnesAreBits) {
  for (const std::size_t every : {1, 2, 5, 5000}) {
    std::vector<float> values(4099, 0), again(4099, 9);
    for (std::size_t i = 0; i < values.size(); i += every) values[i] = 1;
    const std::vector<std::byte> packed = packed_by(values, 100);
    EXPECT_EQ(packed.size(), 513U);
    ASSERT_TRUE(unpack_zeros(packed, again));
    expect_same_bits(again, values);
  }
}

TEST(PackedZeros, WhatWouldGrowIsNotSmaller) {
  EXPECT_FALSE(ZeroPacker(std::vector<float>(100, 2.0F)).smaller());
  EXPECT_TRUE(ZeroPacker(std::vector<float>(100, 1.0F)).smaller());
}

TEST(PackedZeros, OtherBytesAreRefused) {
  std::vector<float> values(16, 0);
  std::vector<std::byte> bytes(2 + sizeof(float), std::byte{0});
  EXPECT_FALSE(unpack_zeros(bytes, values));  // no bit, and an element
  bytes[0] = std::byte{4};
  EXPECT_TRUE(unpack_zeros(bytes, values));
  bytes[1] = std::byte{4};
  bytes.resize(2 + 2 * sizeof(float));
  EXPECT_FALSE(unpack_zeros(bytes, std::span(values).first(10)));  // a bit behind the last element
  bytes.resize(4 + 2 * sizeof(float));
  bytes[2] = std::byte{8};
  bytes[3] = std::byte{0};
  EXPECT_TRUE(unpack_zeros(bytes, values));
  bytes[2] = std::byte{4};  // a zero that is there
  EXPECT_FALSE(unpack_zeros(bytes, values));
}

}  // namespace
}  // namespace trireme::io
