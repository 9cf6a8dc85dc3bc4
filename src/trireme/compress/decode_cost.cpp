#include "trireme/compress/decode_cost.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>

#include "trireme/compress/measure.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/ops/matmul/few_rows.h"
#include "trireme/simulator/kernel.h"

namespace trireme::compress {
namespace {

constexpr std::size_t kTerms = 4;
using Terms = std::array<double, kTerms>;

Terms terms_of(const DecodeWork& work) { return {work.products, work.others, work.product_bytes, work.other_bytes}; }

double weight_of(const DecodeSample& sample, double near) {
  if (near <= 0) return 1;
  const double apart = 2 * std::log2(sample.seconds / near);
  return 1 / (1 + apart * apart);
}

double square_error(std::span<const DecodeSample> samples, const Terms& x, double near) {
  double sum = 0;
  for (const DecodeSample& s : samples) {
    const Terms t = terms_of(s.work);
    double predicted = 0;
    for (std::size_t i = 0; i < kTerms; ++i) predicted += x[i] * t[i];
    sum += weight_of(s, near) * std::pow(predicted / s.seconds - 1, 2);
  }
  return sum;
}

// The least squares of the terms that `used` names (a bit each), the others being 0; nothing where they do not decide.
std::optional<Terms> least_squares(std::span<const DecodeSample> samples, unsigned used, double near) {
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < kTerms; ++i)
    if ((used >> i & 1U) != 0) of.push_back(i);
  const std::size_t n = of.size();
  // Normal equations of rows t / seconds, which should give 1; each column by its own size.
  std::array<std::array<double, kTerms + 1>, kTerms> m{};
  Terms size{};
  for (std::size_t r = 0; r < n; ++r) {
    for (const DecodeSample& s : samples) size[r] = std::max(size[r], terms_of(s.work)[of[r]] / s.seconds);
    if (size[r] == 0) return std::nullopt;
  }
  for (const DecodeSample& s : samples) {
    const Terms t = terms_of(s.work);
    for (std::size_t r = 0; r < n; ++r) {
      const double left = weight_of(s, near) * t[of[r]] / s.seconds / size[r];
      for (std::size_t c = 0; c < n; ++c) m[r][c] += left * t[of[c]] / s.seconds / size[c];
      m[r][n] += left;
    }
  }
  for (std::size_t p = 0; p < n; ++p) {
    std::size_t best = p;
    for (std::size_t r = p + 1; r < n; ++r)
      if (std::abs(m[r][p]) > std::abs(m[best][p])) best = r;
    std::swap(m[p], m[best]);
    if (std::abs(m[p][p]) < 1e-12) return std::nullopt;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == p) continue;
      const double factor = m[r][p] / m[p][p];
      for (std::size_t c = p; c <= n; ++c) m[r][c] -= factor * m[p][c];
    }
  }
  Terms x{};
  for (std::size_t r = 0; r < n; ++r) x[of[r]] = m[r][n] / m[r][r] / size[r];
  return x;
}

// A model whose weights are all the same number: what a token takes does not depend on them.
Model stand_in(const train::Config& config, const train::Registry& registry) {
  Model model{config, {}};
  train::Config own = config;
  own.parallel.mesh = "auto";
  own.train.batch = own.train.micro_batch = 1;
  const train::Compiled compiled = train::compile(own, registry, {.purpose = train::Purpose::evaluate});
  for (const ir::State& state : compiled.saved_states()) {
    const TensorType whole{state.type.dtype, state.global_shape()};
    std::vector<std::byte> bytes(whole.bytes());
    if (whole.dtype == DType::f32)
      std::fill_n(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float), 0.01F);
    model.states[state.name] = std::move(bytes);
  }
  return model;
}

}  // namespace

DecodeWork decode_work(train::Config config, const train::Registry& registry) {
  config.parallel.mesh = "auto";
  config.train.batch = config.train.micro_batch = 1;
  train::CompileOptions options{.purpose = train::Purpose::generate, .sequence = kDecodeTokens};
  options.threads = train::compute_threads(config);
  const train::Compiled compiled = train::compile(config, registry, options);
  const program::Program& decode = compiled.roles.front().program(compiled.prefill.front().program);
  DecodeWork work;
  for (const program::Instruction& i : decode.instructions) {
    if (i.kind != program::Instruction::Kind::launch) continue;
    const simulator::Kernel kernel = simulator::kernel_of(i);
    const bool product = kernel.product || kernel.matrix;
    (product ? work.products : work.others) += 1;
    const double bytes = kernel.cost.bytes_read + kernel.cost.bytes_written;
    const double share =
        kernel.product ? ops::busiest_share(static_cast<std::int64_t>(kernel.sizes[1]), options.threads) : 1;
    (product ? work.product_bytes : work.other_bytes) += share * bytes;
  }
  return work;
}

DecodeCost fit_decode_cost(std::span<const DecodeSample> samples, double near) {
  if (samples.empty()) fail("no measurements to fit a cost to");
  // Of all sets of terms, the one that comes closest without a term below zero.
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned used = 1; used < 1U << kTerms; ++used) {
    const auto x = least_squares(samples, used, near);
    if (!x || std::any_of(x->begin(), x->end(), [](double v) { return v < 0; })) continue;
    if (const double error = square_error(samples, *x, near); error < least) {
      least = error;
      best = *x;
    }
  }
  return {best[0], best[1], best[2], best[3]};
}

std::vector<DecodeSample> measure_decoding(std::span<const train::Config> configs, const train::Registry& registry,
                                           const std::function<void(std::size_t, std::size_t)>& progress) {
  std::vector<DecodeSample> samples;
  for (const train::Config& config : configs) {
    if (progress) progress(samples.size(), configs.size());
    samples.push_back(
        {decode_work(config, registry), decode_seconds(stand_in(config, registry), registry, kDecodeTokens)});
  }
  return samples;
}

std::optional<DecodeCost> read_decode_cost(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const auto o = parse_json(in);
  const auto number = [&](const char* key) {
    if (!o.is_object() || !o.contains(key) || !o[key].is_number())
      fail("{} is not what a search writes: '{}' is missing; remove it, and the machine is measured anew",
           file.string(), key);
    return o[key].get<double>();
  };
  return DecodeCost{number("product"), number("other"), number("product_byte"), number("other_byte")};
}

void write_decode_cost(const DecodeCost& cost, const std::filesystem::path& file) {
  const nlohmann::ordered_json o = {{"product", cost.product},
                                    {"other", cost.other},
                                    {"product_byte", cost.product_byte},
                                    {"other_byte", cost.other_byte}};
  write_file_atomically(file.string(), o.dump() + "\n");
}

}  // namespace trireme::compress
