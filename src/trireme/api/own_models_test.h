#pragma once
#include <trireme/trireme.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

// For tests of models that a seed chooses.
namespace trireme::testing {

// What a seed chooses, one number after the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  std::int64_t below(std::int64_t n) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(n));
  }
  bool coin() { return below(2) == 1; }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(std::ssize(all)))];
  }

 private:
  std::uint64_t state_;
};

using Weights = std::map<std::string, std::vector<float>>;

struct OwnRun {
  std::vector<double> losses;
  double eval = 0;
  Weights start, weights;
};

inline Weights weights_of(Trainer& t) {
  Weights all;
  for (const Parameter& p : t.parameter_list()) all[p.name] = t.values(p.name);
  return all;
}

inline OwnRun run_of(Trainer t) {
  OwnRun r;
  r.start = weights_of(t);
  t.on_step([&](const Metrics& m) {
    r.losses.push_back(m.loss);
    return Next::go;
  });
  r.eval = t.run().eval_loss.value();
  r.weights = weights_of(t);
  return r;
}

// How far a run is from another, in parts of what is allowed: above 1 is too far.
struct Apart {
  double loss = 0, weights = 0;
  std::string worst;
};

// How closely two runs must agree: losses to `loss` of each, and the weights of a tensor to `way` of the way that it
// has come and of `others` times what its elements would have come as those of all tensors have (tensors whose exact
// gradient is nearly zero move by rounding alone).
struct Close {
  double loss, way, others;
};
inline Apart apart(const OwnRun& one, const OwnRun& many, const Close& close) {
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double squares = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2.0);
    return std::sqrt(squares);
  };
  Apart result;
  const auto worse = [](double& most, double value) {
    if (value > most || std::isnan(value)) most = value;
    return most == value;
  };
  const auto loss = [&](double a, double b) { worse(result.loss, std::abs(a - b) / (close.loss * std::abs(a))); };
  if (one.losses.empty() || one.losses.size() != many.losses.size()) return {HUGE_VAL, HUGE_VAL, "other steps"};
  for (std::size_t s = 0; s < one.losses.size(); ++s) loss(one.losses[s], many.losses[s]);
  loss(one.eval, many.eval);
  double squares = 0, elements = 0;
  for (const auto& [name, values] : one.weights) {
    squares += std::pow(distance(values, one.start.at(name)), 2.0);
    elements += static_cast<double>(values.size());
  }
  for (const auto& [name, values] : one.weights) {
    const double size = static_cast<double>(values.size());
    const double slack = close.others * std::sqrt(squares / elements * size);
    const double rounding = 0x1p-23 * distance(values, std::vector<float>(values.size()));
    const double allowed = close.way * (distance(values, one.start.at(name)) + slack) + rounding;
    if (worse(result.weights, distance(values, many.weights.at(name)) / allowed)) result.worst = name;
  }
  return result;
}

}  // namespace trireme::testing
