#include "trireme/device/arena.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "trireme/core/error.h"

namespace trireme::device {
namespace {

std::string guard_message(const Arena& arena) {
  try {
    arena.check_guards();
  } catch (const Error& e) {
    return e.message();
  }
  return "intact";
}

TEST(Arena, AlignedAndZero) {
  const Arena arena(1000);
  EXPECT_EQ(arena.bytes(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % 64, 0U);
  for (std::size_t i = 0; i < arena.bytes(); ++i) ASSERT_EQ(arena.data()[i], std::byte{0});
}

TEST(Arena, GuardsSeeWritesOutside) {
  for (const std::size_t bytes : {0UL, 1UL, 64UL, 4095UL, 4096UL, 100000UL}) {
    const Arena arena(bytes);
    for (std::size_t i = 0; i < bytes; ++i) arena.data()[i] = std::byte{0xFF};
    EXPECT_EQ(guard_message(arena), "intact");
    const std::byte before = arena.data()[-1];
    arena.data()[-1] = std::byte{0};
    EXPECT_EQ(guard_message(arena), "something wrote before the arena's first byte");
    arena.data()[-1] = before;
    arena.data()[bytes] = std::byte{0};  // the very next byte, also where pages do not end
    EXPECT_EQ(guard_message(arena), "something wrote behind the arena's last byte");
  }
}

TEST(Arena, TooLargeIsAnError) { EXPECT_THROW(Arena(std::size_t{1} << 60), Error); }

}  // namespace
}  // namespace trireme::device
