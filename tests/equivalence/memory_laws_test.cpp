// How memory grows with depth: the laws that the techniques are there for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "equivalence/training.h"
#include "trireme/program/memory_plan.h"

namespace trireme::testing {
namespace {

train::Config perceptron(std::int64_t layers) {
  train::Config config = small_model("mlp");
  config.model.layers = layers;
  config.model.width = 64;
  config.train.batch = 256;
  return config;
}

// The most activation bytes alive at any time.
std::size_t activations(const program::Program& program) {
  std::vector<std::ptrdiff_t> change(program.instructions.size() + 1, 0);
  for (const program::Buffer& b : program.buffers) {
    if (b.category != program::Category::activations || b.first == program::kNone) continue;
    change[static_cast<std::size_t>(b.first)] += static_cast<std::ptrdiff_t>(b.bytes);
    change[static_cast<std::size_t>(b.last) + 1] -= static_cast<std::ptrdiff_t>(b.bytes);
  }
  std::ptrdiff_t most = 0;
  std::ptrdiff_t now = 0;
  for (const std::ptrdiff_t c : change) most = std::max(most, now += c);
  return static_cast<std::size_t>(most);
}

std::size_t step_activations(const train::Config& config) {
  const train::Registry registry;
  return activations(train::compile(config, registry, {}).roles.front().program("step"));
}

// Slope of log(bytes) over log(layers), by least squares.
double exponent(const std::vector<std::int64_t>& layers, const std::string& policy) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const std::int64_t n : layers) {
    train::Config config = perceptron(n);
    config.memory.remat = policy;
    const double x = std::log(static_cast<double>(n));
    const double y = std::log(static_cast<double>(step_activations(config)));
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  const auto count = static_cast<double>(layers.size());
  return (count * sxy - sx * sy) / (count * sxx - sx * sx);
}

TEST(MemoryLaws, ForwardAloneTakesTheSameHoweverDeep) {
  const train::Registry registry;
  std::vector<std::size_t> bytes;
  for (const std::int64_t layers : {4, 400})
    bytes.push_back(activations(train::compile(perceptron(layers), registry, {.purpose = train::Purpose::evaluate})
                                    .roles.front()
                                    .program("eval")));
  EXPECT_EQ(bytes[0], bytes[1]);
  // Two buffers: what a layer reads and what it writes.
  EXPECT_EQ(bytes[0], 2 * 256 * 64 * sizeof(float));
}

TEST(MemoryLaws, RootOfTheDepth) {
  // Up to 4096 layers in the slow suite.
  const char* most = std::getenv("TRIREME_LAYERS");
  std::vector<std::int64_t> layers;
  for (std::int64_t n = 64; n <= (most == nullptr ? 512 : std::stoll(most)); n *= 2) layers.push_back(n);
  EXPECT_NEAR(exponent(layers, "none"), 1.0, 0.05);
  EXPECT_NEAR(exponent(layers, "sqrt"), 0.5, 0.05);
}

}  // namespace
}  // namespace trireme::testing
