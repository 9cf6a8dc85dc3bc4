#include "trireme/device/cuda/trial.h"

#include <gtest/gtest.h>

#include "trireme/device/cuda/cuda.h"

namespace trireme::device::cuda {
namespace {

TEST(CudaTrial, OneBitIsADifference) {
  if (gpus().empty()) GTEST_SKIP() << "no CUDA device found";
  constexpr std::size_t kBytes = 100'003;  // no multiple of what is compared at once
  constexpr std::size_t kRoom = 100'096;
  const std::unique_ptr<void, void (*)(void*)> memory(allocate(2 * kRoom + 256), [](void* p) { release(p); });
  auto* const data = static_cast<std::byte*>(memory.get());
  fill_with_noise(data, kRoom, DType::bf16);
  const auto streams = make_streams({});
  SameBits same({{data, data + kRoom, kBytes}}, reinterpret_cast<unsigned long long*>(data + 2 * kRoom));
  EXPECT_TRUE(same.check(*streams));  // the first sets the bits
  EXPECT_TRUE(same.check(*streams));
  for (const std::size_t at : {std::size_t{0}, std::size_t{50'001}, kBytes - 1}) {
    std::byte byte{};
    to_host(&byte, data + at, 1);
    const std::byte flipped = byte ^ std::byte{4};
    to_device(data + at, &flipped, 1);
    EXPECT_FALSE(same.check(*streams)) << at;
    to_device(data + at, &byte, 1);
    EXPECT_TRUE(same.check(*streams)) << at;
  }
}

TEST(CudaTrial, NoiseIsTheSameEveryTime) {
  if (gpus().empty()) GTEST_SKIP() << "no CUDA device found";
  constexpr std::size_t kBytes = 1 << 16;
  const std::unique_ptr<void, void (*)(void*)> memory(allocate(2 * kBytes), [](void* p) { release(p); });
  auto* const data = static_cast<std::byte*>(memory.get());
  std::vector<std::byte> one(kBytes);
  std::vector<std::byte> other(kBytes);
  fill_with_noise(data, kBytes, DType::f32);
  to_host(one.data(), data, kBytes);
  fill_with_noise(data + kBytes, kBytes, DType::f32);
  to_host(other.data(), data + kBytes, kBytes);
  EXPECT_EQ(one, other);
}

}  // namespace
}  // namespace trireme::device::cuda
