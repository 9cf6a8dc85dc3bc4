#include "trireme/compress/measure.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "trireme/train/evaluate.h"
#include "trireme/train/sample_text.h"

namespace trireme::compress {
namespace {

constexpr std::int64_t kPrompt = 4;
constexpr int kRepeats = 5;

// A model that continues a short prompt greedily.
class Decoder {
 public:
  Decoder(const Model& model, const train::Registry& registry, std::int64_t tokens)
      : running_(model, registry, {.purpose = train::Purpose::generate, .sequence = kPrompt + tokens}),
        tokens_(tokens) {
    for (std::int64_t i = 0; i < kPrompt; ++i)
      prompt_.push_back(static_cast<std::int32_t>((i * 7919 + 13) % model.config.model.vocab));
  }

  // Seconds of each token after the first.
  std::vector<double> token_seconds() {
    using Clock = std::chrono::steady_clock;
    std::vector<Clock::time_point> at;
    train::sample_tokens(running_.session(), prompt_, {.tokens = tokens_, .sampling = {.temperature = 0}},
                         [&](std::int32_t) {
                           at.push_back(Clock::now());
                           return true;
                         });
    std::vector<double> each;
    for (std::size_t i = 1; i < at.size(); ++i)
      each.push_back(std::chrono::duration<double>(at[i] - at[i - 1]).count());
    return each;
  }
  // Of one, in the mean.
  double seconds() { return mean(token_seconds()); }

  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) /
           static_cast<double>(std::max<std::size_t>(1, values.size()));
  }

 private:
  Running running_;
  std::int64_t tokens_;
  std::vector<std::int32_t> prompt_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

Figures measure(const Model& model, const train::Registry& registry, const MeasureOptions& options) {
  Figures figures;
  Running running(model, registry, {.purpose = train::Purpose::evaluate});
  figures.bytes = stored_bytes(model, running.compiled());
  figures.parameters = running.compiled().parameters();
  if (options.held_out != nullptr) {
    const train::Evaluation found = train::evaluate(running.session(), *options.held_out, options.samples);
    figures.loss = found.loss;
    figures.accuracy = found.accuracy;
  }
  return figures;
}

std::uint64_t cache_bytes(const Model& model, const train::Registry& registry) {
  train::Config config = model.config;
  config.parallel.mesh = "auto";
  config.train.batch = config.train.micro_batch = 1;
  const train::Compiled compiled = train::compile(config, registry, {.purpose = train::Purpose::generate});
  std::uint64_t bytes = 0;
  for (const ir::State& state : compiled.roles.front().module.states)
    if (state.category == ir::Category::cache) bytes += state.type.bytes();
  return bytes;
}

std::pair<double, double> decode_speeds(const Model& before, const Model& after, const train::Registry& registry,
                                        std::int64_t tokens) {
  Decoder first(before, registry, tokens), second(after, registry, tokens);
  std::vector<double> times[2];
  for (int r = 0; r <= kRepeats; ++r) {
    const double one = first.seconds(), two = second.seconds();
    if (r == 0) continue;  // pages and caches are cold
    times[0].push_back(one);
    times[1].push_back(two);
  }
  return {1 / median(times[0]), 1 / median(times[1])};
}

double decode_seconds(const Model& model, const train::Registry& registry, std::int64_t tokens) {
  // What else runs makes a token longer and never shorter. Where it runs all the time a round is never undisturbed, but
  // each of its tokens is now and then: the least of each counts, until that has been so for a while.
  constexpr int kRounds = 10, kMaxRounds = 100;
  Decoder decoder(model, registry, tokens);
  decoder.seconds();  // pages and caches are cold
  std::vector<double> least = decoder.token_seconds();
  for (int since = 0, all = 0; since < kRounds && all < kMaxRounds; ++since, ++all) {
    const double before = Decoder::mean(least);
    const std::vector<double> now = decoder.token_seconds();
    for (std::size_t i = 0; i < std::min(least.size(), now.size()); ++i) least[i] = std::min(least[i], now[i]);
    if (Decoder::mean(least) < 0.99 * before) since = 0;
  }
  return Decoder::mean(least);
}

}  // namespace trireme::compress
