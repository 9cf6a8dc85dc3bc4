// The bytes of halos, held to what windows read, counted pixel by pixel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "equivalence/training.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/conv/conv2d.h"
#include "trireme/ops/conv/pool2d.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kChannels = 4;

struct Conv {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t padding = 0;

  std::int64_t made(std::int64_t extent) const {
    return (extent + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1;
  }
};

// Two such convolutions: of one the gradient of its input is taken, of the other that of its weights alone.
Setup two_convolutions(const Conv& conv) {
  Setup setup;
  setup.registry.models = {};
  setup.registry.models.add(
      {"convnet",
       [conv](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
         ir::Value x = in.images;
         for (int i = 0; i < 2; ++i) {
           const ir::Builder k = b.scope("conv", i);
           const Shape shape{kChannels, conv.kernel, conv.kernel, x.shape().back()};
           x = ops::conv2d(k.here(x), k.parameter("weight", shape, ir::Init::normal(0.2)), {},
                           {.stride = {conv.stride, conv.stride},
                            .padding = {conv.padding, conv.padding},
                            .dilation = {conv.dilation, conv.dilation}});
           x = ir::apply1("relu", {x});
         }
         const ir::Value pooled = ops::global_avg_pool(b.scope("pool").here(x));
         const ir::Value weight = b.parameter("head.weight", {c.classes, kChannels}, ir::Init::normal(0.5));
         const ir::Value logits = ir::apply1("matmul", {b.scope("head").here(pooled), weight}, {{"trans_b", true}});
         if (!in.labels) return logits;
         return ir::apply1("cross_entropy", {logits, in.labels}, {{"scale", 1.0 / 8}});
       },
       true, [](models::ModelConfig&, const OptionNames&) {}});
  return setup;
}

// Pixel `i` of `extent` is the rank's whose slice it is in: extents are true and differ by one at most.
int owner(std::int64_t i, std::int64_t extent, int ranks) {
  int rank = 0;
  while (i >= extent * (rank + 1) / ranks) ++rank;
  return rank;
}

// By rank: how many of its pixels others need, once for each that does. `needs(rank)` is the first and last pixel.
template <class Needs>
std::vector<std::int64_t> given(std::int64_t extent, int ranks, const Needs& needs) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [first, last] = needs(rank);
    for (std::int64_t i = first; i <= last; ++i)
      if (const int has = owner(i, extent, ranks); has != rank) ++rows[static_cast<std::size_t>(has)];
  }
  return rows;
}

using Span = std::pair<std::int64_t, std::int64_t>;

// The pixels under the windows that a rank makes.
Span read(const Conv& conv, std::int64_t extent, int ranks, int rank) {
  Span span{extent, -1};
  for (std::int64_t o = 0; o < conv.made(extent); ++o) {
    if (owner(o, conv.made(extent), ranks) != rank) continue;
    for (std::int64_t k = 0; k < conv.kernel; ++k)
      if (const std::int64_t i = o * conv.stride - conv.padding + k * conv.dilation; i >= 0 && i < extent)
        span = {std::min(span.first, i), std::max(span.second, i)};
  }
  return span;
}

// The windows that are over a pixel of a rank.
Span reaching(const Conv& conv, std::int64_t extent, int ranks, int rank) {
  Span span{conv.made(extent), -1};
  for (std::int64_t o = 0; o < conv.made(extent); ++o) {
    const std::int64_t first = o * conv.stride - conv.padding;
    const std::int64_t last = first + (conv.kernel - 1) * conv.dilation;
    for (std::int64_t i = std::max<std::int64_t>(first, 0); i <= std::min(last, extent - 1); ++i)
      if (owner(i, extent, ranks) == rank) span = {std::min(span.first, o), std::max(span.second, o)};
  }
  return span;
}

// By rank, and by whether they go backwards.
std::vector<std::int64_t> sent(const train::Compiled& compiled, bool backward) {
  std::vector<std::int64_t> bytes;
  for (int rank = 0; rank < compiled.mesh.ranks(); ++rank) {
    bytes.push_back(0);
    for (const program::Instruction& i : compiled.role_of(rank).program("step").instructions) {
      if (i.op == nullptr || i.op->name != ops::kHaloExchange || (i.phase != ir::Phase::forward) != backward) continue;
      const ops::Halo halo(i.attributes);
      bytes.back() +=
          halo.rows_given() * static_cast<std::int64_t>(ops::halo_row_bytes(i.inputs.front().type, halo.dim));
    }
  }
  return bytes;
}

std::vector<std::int64_t> scaled(std::vector<std::int64_t> rows, std::int64_t bytes) {
  for (std::int64_t& r : rows) r *= bytes;
  return rows;
}

std::vector<std::int64_t> plus(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

std::int64_t total(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

TEST(SpatialTrafficByWindows, HalosAreWhatWindowsRead) {
  int halos_of_x = 0, halos_of_dy = 0;  // that were the smaller
  for (const char* axis : {"h", "w"})
    for (const int ranks : {2, 3, 5})
      for (const std::int64_t kernel : {1, 3, 5, 7})
        for (const std::int64_t stride : {1, 2})
          for (const std::int64_t dilation : {1, 2})
            for (const bool same : {true, false}) {
              const std::int64_t reach = (kernel - 1) * dilation;
              const Conv conv{kernel, stride, dilation, same ? reach / 2 : 0};
              // Slices of 3 to 9 pixels, and with five ranks smaller than a kernel.
              const std::int64_t image = same ? 17 : std::max<std::int64_t>(17, reach * (stride + 1) + stride + 12);
              SCOPED_TRACE(fmt::format("{}={} kernel {} stride {} dilation {} padding {} image {}", axis, ranks, kernel,
                                       stride, dilation, conv.padding, image));
              if (conv.made(conv.made(image)) < ranks) continue;  // every rank has some of what comes out
              train::Config config = small_model("convnet");
              config.model.image = image;
              config.train.batch = 2;
              train::resolve_model(config, config.model.vocab);
              const Trained trained(over_mesh(config, fmt::format("{}={}", axis, ranks)), two_convolutions(conv));
              const std::int64_t second = conv.made(image);
              const auto row = [&](std::int64_t extent, std::int64_t channels) {
                return config.train.batch * extent * channels * 4;
              };
              const auto of_x = [&](std::int64_t extent, std::int64_t channels) {
                return scaled(given(extent, ranks, [&](int r) { return read(conv, extent, ranks, r); }),
                              row(extent, channels));
              };
              const auto of_dy = [&](std::int64_t extent) {
                return scaled(given(conv.made(extent), ranks, [&](int r) { return reaching(conv, extent, ranks, r); }),
                              row(conv.made(extent), kChannels));
              };
              EXPECT_EQ(sent(trained.compiled(), false), plus(of_x(image, config.model.channels), of_x(second, 4)));
              // Backwards of the second: dy. Of the first, whose input has no gradient, the smaller of both halos.
              const std::vector<std::int64_t> x = of_x(image, config.model.channels), dy = of_dy(image);
              const bool takes_x = total(x) < total(dy);
              (takes_x ? halos_of_x : halos_of_dy) += total(dy) != total(x) ? 1 : 0;
              EXPECT_EQ(sent(trained.compiled(), true), plus(of_dy(second), takes_x ? x : dy))
                  << fmt::format("{} with x, {} with dy", fmt::join(x, " "), fmt::join(dy, " "));
            }
  EXPECT_GT(halos_of_x, 0);
  EXPECT_GT(halos_of_dy, 0);
}

}  // namespace
}  // namespace trireme::testing
