#include "trireme/core/text.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ParseBytes, UnitsAndBareNumbers) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("1024"), 1024U);
  EXPECT_EQ(parse_bytes("17B"), 17U);
  EXPECT_EQ(parse_bytes("25MiB"), 25U << 20);
  EXPECT_EQ(parse_bytes("25MB"), 25'000'000U);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536U);
  EXPECT_EQ(parse_bytes(" 2 GiB "), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("3TB"), 3'000'000'000'000U);
  EXPECT_EQ(parse_bytes("4TiB"), std::uint64_t{4} << 40);
}

TEST(ParseBytes, RefusesTheRest) {
  for (const char* text : {"", " ", "MiB", "-1", "5 apples", "5mib", "1e99", "nan", "inf", "1KiB2", "1 2"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(ParseDuration, SumsOfUnits) {
  EXPECT_DOUBLE_EQ(*parse_duration("10min"), 600);
  EXPECT_DOUBLE_EQ(*parse_duration("3h50m"), 13800);
  EXPECT_DOUBLE_EQ(*parse_duration("45s"), 45);
  EXPECT_DOUBLE_EQ(*parse_duration("200ms"), 0.2);
  EXPECT_DOUBLE_EQ(*parse_duration("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(*parse_duration("1d 2h"), 93600);
  EXPECT_DOUBLE_EQ(*parse_duration("2.5"), 2.5);
  EXPECT_DOUBLE_EQ(*parse_duration("0"), 0);
}

TEST(ParseDuration, RefusesTheRest) {
  for (const char* text : {"", " ", "min", "-5s", "5 weeks", "3h-50m", "inf", "h3"})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(14U << 20), "14.0 MiB");
  EXPECT_EQ(format_bytes((std::uint64_t{3} << 40) + (std::uint64_t{1} << 39)), "3.5 TiB");
}

TEST(Format, Count) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(842496), "842,496");
  EXPECT_EQ(format_count(1234567890), "1,234,567,890");
}

TEST(Format, Duration) {
  EXPECT_EQ(format_duration(25e-6), "25 µs");
  EXPECT_EQ(format_duration(0.85), "850 ms");
  EXPECT_EQ(format_duration(3.21), "3.2 s");
  EXPECT_EQ(format_duration(42), "42 s");
  EXPECT_EQ(format_duration(83), "1m 23s");
  EXPECT_EQ(format_duration(3600), "1h 00m");
  EXPECT_EQ(format_duration(13800), "3h 50m");
}

TEST(Format, Rate) {
  EXPECT_EQ(format_rate(12), "12");
  EXPECT_EQ(format_rate(20400), "20.4k");
  EXPECT_EQ(format_rate(3.1e6), "3.1M");
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"layers", "width", "heads", "context", "vocab"};
  EXPECT_EQ(nearest("layres", names), "layers");  // two letters swapped
  EXPECT_EQ(nearest("head", names), "heads");
  EXPECT_EQ(nearest("contxt", names), "context");
  EXPECT_EQ(nearest("width", names), "width");
  EXPECT_EQ(nearest("temperature", names), std::nullopt);
  EXPECT_EQ(nearest("x", names), std::nullopt);
  EXPECT_EQ(nearest("layers", {}), std::nullopt);
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,b,c", ','), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split("a,,", ','), (std::vector<std::string>{"a", "", ""}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
}

TEST(Trim, BothEnds) {
  EXPECT_EQ(trim("  a b \t\n"), "a b");
  EXPECT_EQ(trim(" \t"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Sparkline, ScalesToItsRange) {
  const std::vector<double> rising = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sparkline(rising, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(rising, 2), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{3, 3, 3}, 10), "▁▁▁");
  EXPECT_EQ(sparkline({}, 10), "");
  EXPECT_EQ(sparkline(rising, 0), "");
}

}  // namespace
}  // namespace trireme
