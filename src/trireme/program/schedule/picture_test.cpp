#include "trireme/program/schedule/picture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/core/text.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/pipedream.h"
#include "trireme/program/schedule/zero_bubble.h"

namespace trireme::program {
namespace {

std::string drawn(const Schedule& schedule, const PictureOptions& options = {}, const ScheduleCosts& costs = {}) {
  return picture(schedule, time_schedule(schedule, costs), options);
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(Picture, StagesAndTime) {
  EXPECT_EQ(drawn(one_f_one_b_schedule(2, 2)),
            "time     0              5\n"
            "stage 0  F0 F1 ·· ·· B0━━━ ·· B1━━━\n"
            "stage 1  ·· F0 B0━━━ F1 B1━━━ ·· ··\n");
  EXPECT_EQ(drawn(zero_bubble_schedule(2, 2)),
            "time     0              5\n"
            "stage 0  F0 F1 ·· B0 W0 B1 W1\n"
            "stage 1  ·· F0 B0 F1 B1 W0 W1\n");
}

TEST(Picture, GoesOnBelowWhereItIsTooWide) {
  EXPECT_EQ(drawn(one_f_one_b_schedule(2, 2), {.width = 22}),
            "time     0\n"
            "stage 0  F0 F1 ·· ··\n"
            "stage 1  ·· F0 B0━━━\n"
            "\n"
            "time     4  5\n"
            "stage 0  B0━━━ ·· B1━\n"
            "stage 1  F1 B1━━━ ··\n"
            "\n"
            "time     8\n"
            "stage 0  ━━\n"
            "stage 1  ··\n");
}

TEST(Picture, EveryActionIsDrawnOnceAtAnyWidth) {
  const Schedule schedule = interleaved_schedule(3, 12, 2);
  for (const int width : {1, 20, 57, 100, 1000}) {
    const std::string text = drawn(schedule, {.width = width});
    EXPECT_EQ(count(text, "F"), 3U * 12 * 2) << width;
    EXPECT_EQ(count(text, "B"), 3U * 12 * 2) << width;
    for (const char* name : {"F11.1", "B3", "B11.1"}) EXPECT_GE(count(text, name), 3U) << name << width;
    if (width < 20) continue;
    for (const std::string& line : split(text, '\n')) {
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, width) << line;
    }
  }
}

TEST(Picture, ColourIsForTerminalsAlone) {
  const Schedule schedule = zero_bubble_schedule(2, 2);
  EXPECT_EQ(drawn(schedule).find('\x1b'), std::string::npos);
  std::string colours = drawn(schedule, {.colour = true});
  EXPECT_EQ(count(colours, "\x1b[30;48;5;222m"), 4U);  // weight gradients
  for (std::size_t at = colours.find('\x1b'); at != std::string::npos; at = colours.find('\x1b'))
    colours.erase(at, colours.find('m', at) - at + 1);
  EXPECT_EQ(colours, drawn(schedule));
}

TEST(Picture, StepsStartTheirNumbersAgain) {
  const Schedule schedule = unrolled(pipedream_schedule(2, 2), 2);
  EXPECT_EQ(drawn(schedule, {.micro_batches = 2}),
            "time     0              5              10\n"
            "stage 0  F0 F1 ·· ·· B0━━━ F0 B1━━━ F1 B0━━━ ·· B1━━━\n"
            "stage 1  ·· F0 B0━━━ F1 B1━━━ F0 B0━━━ F1 B1━━━ ·· ··\n");
}

TEST(Picture, CostsChangeTheWidths) {
  EXPECT_EQ(drawn(gpipe_schedule(1, 1), {}, {.stages = {{2, 1, 0.5}}}),
            "time     0\n"
            "stage 0  F0━━━ B0━━\n");
}

TEST(Svg, HasEveryActionAndIsWellFormed) {
  const Schedule schedule = zero_bubble_schedule(3, 5);
  const std::string svg = schedule_svg(schedule, time_schedule(schedule), {.title = "a < b & c"});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << svg;
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(svg, "<title>"), 3U * 3 * 5);
  EXPECT_NE(svg.find("<title>W4: 16 to 17</title>"), std::string::npos) << svg;
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_NE(svg.find("weight gradients"), std::string::npos);
  const Schedule whole = gpipe_schedule(2, 2);
  EXPECT_EQ(schedule_svg(whole, time_schedule(whole)).find("weight gradients"), std::string::npos);
}

}  // namespace
}  // namespace trireme::program
