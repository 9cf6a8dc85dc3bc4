#include "trireme/cli/report.h"

#include <gtest/gtest.h>

#include "trireme/data/tokenizer/utf8.h"

namespace trireme::cli {
namespace {

// What an untrained model says is any bytes.
TEST(Report, WhatIsPrintedIsUtf8) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("für · 中 😀"), "für · 中 😀");
  EXPECT_EQ(printable("\x1B[2J\x7F"), "·[2J·");
  EXPECT_EQ(printable("\xC2\x9B"), "··");       // a control character of its own
  EXPECT_EQ(printable("\xC3"), "·");            // cut
  EXPECT_EQ(printable("\xE0\x80\x80"), "···");  // overlong
  EXPECT_EQ(printable("\xF0\x80\x80\x80"), "····");
  EXPECT_EQ(printable("\xED\xA0\x80"), "···");       // half of a surrogate pair
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "····");  // above U+10FFFF
  for (int lead = 0x80; lead < 0x100; ++lead)
    for (int next = 0x80; next < 0x100; ++next) {
      const std::string text = printable({static_cast<char>(lead), static_cast<char>(next), '\x80', '\x80', 'x'});
      EXPECT_EQ(data::valid_utf8(text), text.size()) << lead << " " << next;
    }
}

// A process that takes more than was predicted is a check that failed.
TEST(Report, MoreMemoryThanPredictedIsMarked) {
  EXPECT_EQ(resident_text(1 << 20, 1 << 20), "1.0 MiB of the whole process, at most 1.0 MiB predicted ✓");
  EXPECT_EQ(resident_text(3 << 20, 2 << 20), "3.0 MiB of the whole process, more than the 2.0 MiB predicted ✗");
}

}  // namespace
}  // namespace trireme::cli
