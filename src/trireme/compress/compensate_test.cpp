#include "trireme/compress/compensate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace trireme::compress {
namespace {

struct Layer {
  std::int64_t n = 24, k = 128;
  std::vector<float> weight, moments;

  // Inputs that vary together, some of them much more than others.
  Layer() : weight(static_cast<std::size_t>(n * k)), moments(static_cast<std::size_t>(k * k)) {
    std::mt19937 random(3);
    std::normal_distribution<double> draw;
    for (float& w : weight) w = static_cast<float>(0.05 * draw(random));
    const std::size_t width = static_cast<std::size_t>(k), sources = 20, rows = 600;
    std::vector<double> mix(sources * width), x(width);
    for (double& m : mix) m = draw(random);
    std::vector<double> sums(width * width);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < width; ++c) x[c] = 0.3 * draw(random);
      for (std::size_t s = 0; s < sources; ++s) {
        const double strength = draw(random);
        for (std::size_t c = 0; c < width; ++c) x[c] += strength * mix[s * width + c] * (c % 16 == 0 ? 4 : 1);
      }
      for (std::size_t i = 0; i < width; ++i)
        for (std::size_t j = 0; j < width; ++j) sums[i * width + j] += x[i] * x[j];
    }
    std::transform(sums.begin(), sums.end(), moments.begin(), [](double v) { return static_cast<float>(v); });
  }
};

struct Result {
  std::vector<std::byte> codes;
  std::vector<float> scales, values;
};

Result expanded(const Layer& layer, const ops::CodeFormat& format, Result r) {
  r.values.resize(layer.weight.size());
  ops::dequantize_rows(r.codes.data(), r.scales.data(), layer.n, layer.k, format, r.values.data());
  return r;
}

Result empty(const Layer& layer, const ops::CodeFormat& format) {
  return {std::vector<std::byte>(format.codes(layer.n, layer.k).bytes()),
          std::vector<float>(static_cast<std::size_t>(format.scales(layer.n, layer.k).elements())),
          {}};
}

TEST(Compensate, MakesTheOutputsErrorAtLeastAThirdSmaller) {
  const Layer layer;
  ThreadPool pool(2);
  for (const ops::CodeFormat format : {ops::CodeFormat{4, 0}, ops::CodeFormat{4, 64}}) {
    Result nearest = empty(layer, format), ours = empty(layer, format);
    ops::quantize_rows(layer.weight.data(), layer.n, layer.k, format, nearest.codes.data(), nearest.scales.data());
    quantize_compensated(layer.weight, layer.n, layer.k, format, layer.moments, pool, ours.codes.data(),
                         ours.scales.data());
    nearest = expanded(layer, format, nearest);
    ours = expanded(layer, format, ours);
    const double before = output_error(layer.weight, nearest.values, layer.n, layer.k, layer.moments, pool);
    const double after = output_error(layer.weight, ours.values, layer.n, layer.k, layer.moments, pool);
    EXPECT_GT(before, 0.01);
    EXPECT_LT(after, before * 2 / 3) << format.str();
  }
}

// As the paper writes it, with the inverse: the error of a column is taken out of all later ones.
std::vector<int> with_the_inverse(const Layer& layer, const ops::CodeFormat& format, const std::vector<float>& scales) {
  const auto k = static_cast<std::size_t>(layer.k);
  std::vector<std::size_t> order(k);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return layer.moments[a * k + a] > layer.moments[b * k + b]; });
  double mean = 0;
  for (std::size_t i = 0; i < k; ++i) mean += layer.moments[i * k + i] / static_cast<double>(k);
  // Gauss-Jordan.
  std::vector<double> a(k * k), inverse(k * k);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = 0; j < k; ++j)
      a[i * k + j] = static_cast<double>(layer.moments[order[i] * k + order[j]]) + (i == j ? 0.01 * mean + 1e-12 : 0);
  for (std::size_t i = 0; i < k; ++i) inverse[i * k + i] = 1;
  for (std::size_t p = 0; p < k; ++p) {
    const double pivot = a[p * k + p];
    for (std::size_t j = 0; j < k; ++j) {
      a[p * k + j] /= pivot;
      inverse[p * k + j] /= pivot;
    }
    for (std::size_t i = 0; i < k; ++i) {
      if (i == p) continue;
      const double factor = a[i * k + p];
      for (std::size_t j = 0; j < k; ++j) {
        a[i * k + j] -= factor * a[p * k + j];
        inverse[i * k + j] -= factor * inverse[p * k + j];
      }
    }
  }
  std::vector<int> codes(static_cast<std::size_t>(layer.n) * k);
  for (std::size_t row = 0; row < static_cast<std::size_t>(layer.n); ++row) {
    std::vector<double> w(k), left = inverse;
    for (std::size_t i = 0; i < k; ++i) w[i] = static_cast<double>(layer.weight[row * k + order[i]]);
    for (std::size_t i = 0; i < k; ++i) {
      const float scale = scales[row * static_cast<std::size_t>(format.groups(layer.k)) +
                                 order[i] / static_cast<std::size_t>(format.group_of(layer.k))];
      const int code = ops::nearest_code(static_cast<float>(w[i]), scale, format.bits);
      codes[row * k + order[i]] = code;
      const double error = (w[i] - static_cast<double>(static_cast<float>(code) * scale)) / left[i * k + i];
      for (std::size_t j = i + 1; j < k; ++j) w[j] -= error * left[i * k + j];
      for (std::size_t r = i + 1; r < k; ++r) {
        const double factor = left[r * k + i] / left[i * k + i];
        for (std::size_t j = i + 1; j < k; ++j) left[r * k + j] -= factor * left[i * k + j];
      }
    }
  }
  return codes;
}

TEST(Compensate, RoundsAsThePaperDoes) {
  Layer layer;
  layer.n = 3;
  layer.weight.resize(static_cast<std::size_t>(layer.n * layer.k));
  ThreadPool pool(1);
  for (const ops::CodeFormat format : {ops::CodeFormat{4, 0}, ops::CodeFormat{4, 32}}) {
    Result ours = empty(layer, format);
    quantize_compensated(layer.weight, layer.n, layer.k, format, layer.moments, pool, ours.codes.data(),
                         ours.scales.data(), 0);
    const std::vector<int> theirs = with_the_inverse(layer, format, ours.scales);
    // f32 sums in another order may tip an element that lies halfway, and then all after it: few rows do.
    std::int64_t same = 0;
    for (std::int64_t i = 0; i < layer.n * layer.k; ++i)
      same += ops::load_code(ours.codes.data() + i / layer.k * format.row_bytes(layer.k), i % layer.k, 4) ==
              theirs[static_cast<std::size_t>(i)];
    EXPECT_EQ(same, layer.n * layer.k) << format.str();
  }
}

// Scales and codes that are made the best for each other, round after round.
TEST(Compensate, EverySweepMakesTheOutputsErrorSmaller) {
  const Layer layer;
  ThreadPool pool(2);
  for (const ops::CodeFormat format : {ops::CodeFormat{4, 0}, ops::CodeFormat{4, 32}}) {
    std::vector<double> errors;
    for (const int sweeps : {0, 1, 2, 3}) {
      Result r = empty(layer, format);
      quantize_compensated(layer.weight, layer.n, layer.k, format, layer.moments, pool, r.codes.data(), r.scales.data(),
                           sweeps);
      r = expanded(layer, format, r);
      errors.push_back(output_error(layer.weight, r.values, layer.n, layer.k, layer.moments, pool));
      if (sweeps > 0) {
        EXPECT_LT(errors.back(), errors[errors.size() - 2]) << format.str() << " after " << sweeps;
      }
    }
    EXPECT_LT(errors.back(), 0.9 * errors.front()) << format.str();
  }
}

TEST(Compensate, AnyNumberOfThreadsGivesTheSame) {
  const Layer layer;
  const ops::CodeFormat format{4, 32};
  std::vector<std::vector<std::byte>> all;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Result r = empty(layer, format);
    quantize_compensated(layer.weight, layer.n, layer.k, format, layer.moments, pool, r.codes.data(), r.scales.data());
    all.push_back(r.codes);
  }
  EXPECT_EQ(all[0], all[1]);
}

}  // namespace
}  // namespace trireme::compress
