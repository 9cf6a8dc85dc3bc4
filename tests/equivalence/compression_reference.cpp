#include "equivalence/compression_reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "support/larger.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

// Large and a power of two: a step of it leaves nearly nothing but the gradient, exactly scaled.
constexpr double kProbeRate = 1048576;

train::Config probe_config(train::Config config, int ranks) {
  config.parallel = {};
  config.train.batch /= ranks;
  config.train.micro_batch = 0;
  config.train.optimizer = "sgd";
  config.train.momentum = 0;
  config.train.weight_decay = 0;
  config.train.clip = 0;
  return config;
}

data::Batch rows_of(const data::Batch& all, std::int64_t first, std::int64_t rows) {
  data::Batch part = all;
  part.rows = rows;
  const auto cut = [&](auto& values) {
    if (values.empty()) return;
    const std::int64_t width = std::ssize(values) / all.rows;
    values = {values.begin() + first * width, values.begin() + (first + rows) * width};
  };
  cut(part.tokens);
  cut(part.targets);
  cut(part.images);
  cut(part.labels);
  return part;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

data::Batch same_rows(const train::Config& config, int ranks, std::int64_t step) {
  const data::Batch all = batch_of(config, step);
  const data::Batch first = rows_of(all, 0, all.rows / ranks);
  data::Batch batch = all;
  const auto repeat = [&](auto& values, const auto& from) {
    values.clear();
    for (int r = 0; r < ranks; ++r) values.insert(values.end(), from.begin(), from.end());
  };
  repeat(batch.tokens, first.tokens);
  repeat(batch.targets, first.targets);
  repeat(batch.images, first.images);
  repeat(batch.labels, first.labels);
  return batch;
}

Replicas::Replicas(const train::Config& config, int ranks, bool same)
    : config_(config), ranks_(ranks), same_rows_(same), probe_(std::make_unique<Trained>(probe_config(config, ranks))) {
  for (const ir::State& state : probe_->role().module.states)
    if (state.trained) {
      decayed_[state.name] = state.decayed;
      weights_[state.name] = floats(probe_->session().state(state.name));
    }
}

std::vector<Tensors> Replicas::gradients(std::int64_t step) {
  const data::Batch all = same_rows_ ? same_rows(config_, ranks_, step) : batch_of(config_, step);
  const std::int64_t rows = all.rows / ranks_;
  std::vector<Tensors> terms(static_cast<std::size_t>(ranks_));
  loss_ = 0;
  for (int r = 0; r < ranks_; ++r) {
    for (const auto& [name, values] : weights_)
      probe_->session().write_state(name, 0, std::as_bytes(std::span(values)));
    probe_->session().refresh_copies();
    loss_ +=
        static_cast<double>(probe_->session().step(rows_of(all, r * rows, rows), step, kProbeRate, 0).loss) / ranks_;
    for (const auto& [name, values] : weights_) {
      std::vector<float>& term = terms[static_cast<std::size_t>(r)][name];
      for (const float after : floats(probe_->session().state(name))) term.push_back(after);
      for (std::size_t i = 0; i < term.size(); ++i)
        term[i] =
            static_cast<float>((static_cast<double>(values[i]) - static_cast<double>(term[i])) / kProbeRate / ranks_);
    }
  }
  return terms;
}

void Replicas::clip(Tensors& g, double max_norm) {
  double total = 0;
  for (const auto& [name, values] : g)
    for (const float x : values) total += static_cast<double>(x) * static_cast<double>(x);
  if (max_norm <= 0 || std::sqrt(total) <= max_norm) return;
  const double factor = max_norm / (std::sqrt(total) + 1e-6);
  for (auto& [name, values] : g)
    for (float& x : values) x = static_cast<float>(factor * static_cast<double>(x));
}

void Replicas::sgd(Tensors g, std::int64_t step) {
  clip(g, config_.train.clip);
  for (auto& [name, values] : g) {
    std::vector<float>& m = momentum_[name];
    m.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      m[i] = static_cast<float>(config_.train.momentum * static_cast<double>(m[i]) + static_cast<double>(values[i]));
  }
  apply(momentum_, step);
}

void Replicas::apply(const Tensors& direction, std::int64_t step) {
  const double lr = train::learning_rate(config_.train, step);
  for (auto& [name, values] : weights_) {
    const double decay = decayed_.at(name) ? config_.train.weight_decay : 0.0;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<double>(values[i]) * (1 - lr * decay) -
                                     lr * static_cast<double>(direction.at(name)[i]));
  }
}

double weight_error(Trained& run, const Tensors& weights) {
  double worst = weights.empty() ? std::numeric_limits<double>::infinity() : 0;  // nothing compared is no agreement
  const auto state = run.state();
  for (const auto& [name, expected] : weights) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double e = static_cast<double>(expected[i]);
      const double d = static_cast<double>(state.at(name)[i]) - e;
      difference += d * d;
      norm += e * e;
    }
    if (difference != 0) worst = larger(worst, std::sqrt(difference / norm));
  }
  return worst;
}

namespace {

using Vector = std::vector<float>;

// Two bits behind the first one.
double rounded_to_byte(double magnitude) {
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);
  return magnitude == 0 ? 0.0 : std::ldexp(std::floor(8 * fraction + 0.5) / 8, exponent);
}

// What comes back of [first, first + n) of a packed vector.
void round_trip(const std::string& kind, const Vector& a, std::size_t first, std::size_t n, Vector& back) {
  double most = 0;
  double sum = 0;
  for (std::size_t i = first; i < first + n; ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i])));
    sum += std::abs(static_cast<double>(a[i]));
  }
  // The largest goes apart, and the scale is that of the others.
  const double scale = rounded_to_byte(n == 1 ? most : (sum - most) / static_cast<double>(n - 1));
  for (std::size_t i = first; i < first + n; ++i) {
    const auto x = static_cast<double>(a[i]);
    if (kind == "bf16") back[i] = static_cast<float>(BFloat16(a[i]));
    if (kind == "int8") back[i] = static_cast<float>(most == 0 ? 0 : std::nearbyint(x * 127 / most) * most / 127);
    if (kind == "onebit") back[i] = static_cast<float>(x < 0 ? -scale : scale);
  }
  if (kind == "onebit")
    for (std::size_t i = first; i < first + n; ++i)
      if (std::abs(static_cast<double>(a[i])) == most) {
        back[i] = static_cast<float>(std::copysign(rounded_to_byte(most), static_cast<double>(a[i])));
        break;
      }
}

// A vector that is packed in `parts` chunks, each in blocks.
Vector round_trip(const std::string& kind, const Vector& a, int parts) {
  const std::size_t block = kind == "onebit" ? 128 : 256;
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t chunk = ((a.size() + n - 1) / n + 7) / 8 * 8;
  Vector back(a.size(), 0.0F);
  for (std::size_t begin = 0; begin < a.size(); begin += chunk) {
    std::size_t end = std::min(a.size(), begin + chunk);
    if (kind == "onebit")
      while (end > begin && a[end - 1] == 0) --end;
    for (std::size_t first = begin; first < end; first += block)
      round_trip(kind, a, first, std::min(block, end - first), back);
  }
  return back;
}

}  // namespace

train::Config compressed(const std::string& model, int ranks, const std::string& kind) {
  train::Config config = small_model(model);
  config.model.width = 40;
  config.train.batch = 24;
  config.train.optimizer = "sgd";
  config.train.lr = 0.05;
  config.parallel.compress = kind;
  return over_ranks(config, ranks);
}

train::Config with_servers(train::Config config) {
  config.parallel.server = "sync";
  config.parallel.servers = 2;
  train::check(config);
  return config;
}

InChunks::InChunks(std::string kind, int ranks, bool feedback, bool one_way)
    : kind_(std::move(kind)),
      ranks_(ranks),
      feedback_(feedback),
      one_way_(one_way),
      residual_(static_cast<std::size_t>(ranks)) {}

Tensors InChunks::sum(const std::vector<Tensors>& terms) {
  Tensors result;
  for (const auto& [name, first] : terms.front()) {
    Vector total(first.size(), 0.0F);
    for (std::size_t r = 0; r < terms.size(); ++r) {
      Vector a = terms[r].at(name);
      if (packed(a)) a = sent(std::move(a), residual_[r][name], one_way_ ? 1 : ranks_);
      for (std::size_t i = 0; i < a.size(); ++i) total[i] += a[i];
    }
    // Chunk by chunk, each at one rank; each is packed as a vector of its own.
    if (packed(total) && !one_way_) total = sent(std::move(total), residual_of_sum_[name], ranks_);
    result[name] = total;
  }
  return result;
}

Vector InChunks::sent(Vector a, Vector& residual, int parts) {
  residual.resize(a.size());
  if (feedback_)
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += residual[i];
  Vector back = round_trip(kind_, a, parts);
  for (std::size_t i = 0; i < a.size(); ++i) {
    residual[i] = a[i] - back[i];
    if (kind_ == "onebit" && a[i] != 0) closest_ = std::min(closest_, std::abs(a[i] / back[i]));
  }
  return back;
}

}  // namespace trireme::testing
