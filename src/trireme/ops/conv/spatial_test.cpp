#include "trireme/ops/conv/spatial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::ops {
namespace {

using ir::Range;

// Pixels under one window, inside the image.
std::set<std::int64_t> under(const SlidingWindow& w, std::int64_t window) {
  std::set<std::int64_t> pixels;
  for (std::int64_t i = window * w.stride - w.padding; i < window * w.stride - w.padding + w.reach; ++i)
    if (i >= 0 && i < w.extent) pixels.insert(i);
  return pixels;
}

template <class F>
void each_case(F&& f) {
  for (std::int64_t extent = 3; extent < 20; ++extent)
    for (std::int64_t reach = 1; reach <= 9; ++reach)
      for (std::int64_t stride = 1; stride <= 3; ++stride)
        for (std::int64_t padding = 0; padding < reach; ++padding)
          for (int parts = 1; parts <= 5; ++parts) {
            const std::int64_t room = extent + 2 * padding - reach;
            SlidingWindow w{extent, room < 0 ? 0 : room / stride + 1, reach, stride, padding, parts};
            if (w.positions < parts || extent < parts) continue;
            for (int place = 0; place < parts; ++place) f(w, place);
          }
}

TEST(SlidingWindow, ReadsThePixelsUnderItsWindows) {
  each_case([](const SlidingWindow& w, int place) {
    std::set<std::int64_t> pixels;
    for (std::int64_t p = w.windows(place).first; p < w.windows(place).last; ++p) pixels.merge(under(w, p));
    ASSERT_FALSE(pixels.empty());
    EXPECT_EQ(w.read(place), (Range{*pixels.begin(), *pixels.rbegin() + 1}));
  });
}

TEST(SlidingWindow, IsReachedByTheWindowsOverItsPixels) {
  each_case([](const SlidingWindow& w, int place) {
    std::set<std::int64_t> windows;
    for (std::int64_t p = 0; p < w.positions; ++p)
      for (const std::int64_t pixel : under(w, p))
        if (pixel >= w.pixels(place).first && pixel < w.pixels(place).last) windows.insert(p);
    if (windows.empty()) return;  // a stride that passes over all of a rank's pixels
    EXPECT_EQ(w.reaching(place), (Range{*windows.begin(), *windows.rbegin() + 1}));
  });
}

// Zeros on either side of a rank's own pixels make as many windows as the rank has to make.
TEST(SlidingWindow, SlidesOverTheRanksOwnPixels) {
  int slid = 0;
  each_case([&](const SlidingWindow& w, int place) {
    const Range own = w.pixels(place);
    const Range made = w.windows(place);
    bool some_each = true;
    for (std::int64_t p = made.first; p < made.last; ++p) {
      const std::set<std::int64_t> pixels = under(w, p);
      some_each = some_each && std::any_of(pixels.begin(), pixels.end(),
                                           [&](std::int64_t pixel) { return pixel >= own.first && pixel < own.last; });
    }
    const std::int64_t before = own.first - (made.first * w.stride - w.padding);
    const std::int64_t after = std::max<std::int64_t>(0, (made.last - 1) * w.stride - w.padding + w.reach - own.last);
    const std::int64_t windows = (own.size() + before + after - w.reach) / w.stride + 1;
    EXPECT_EQ(w.slides_over_own(place), before >= 0 && windows == made.size() && some_each);
    slid += w.slides_over_own(place) ? 1 : 0;
  });
  EXPECT_GT(slid, 1000);
}

TEST(SlidingWindow, InnerWindowsReadTheRanksOwnPixels) {
  int split = 0;
  each_case([&](const SlidingWindow& w, int place) {
    const auto parts = w.split(place);
    if (!parts) return;
    ++split;
    EXPECT_EQ(parts->before.first, w.windows(place).first);
    EXPECT_EQ(parts->before.last, parts->inner.first);
    EXPECT_EQ(parts->inner.last, parts->after.first);
    EXPECT_EQ(parts->after.last, w.windows(place).last);
    for (const Range& part : {parts->before, parts->inner, parts->after}) EXPECT_FALSE(part.empty());
    for (std::int64_t p = parts->inner.first; p < parts->inner.last; ++p)
      for (const std::int64_t pixel : under(w, p)) {
        EXPECT_GE(pixel, w.pixels(place).first);
        EXPECT_LT(pixel, w.pixels(place).last);
      }
  });
  EXPECT_GT(split, 1000);
}

}  // namespace
}  // namespace trireme::ops
