#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/compress/model_shape.h"

namespace trireme::compress {

// What a shape may cost: "params=2M", "bytes=8MiB" of weights in f32, "step=20ms" or "decode=1ms" as the simulator
// predicts them for this machine (`trireme calibrate`); without an amount, what the configuration's own shape costs.
struct Budget {
  enum class Kind { parameters, bytes, step, decode };
  Kind kind = Kind::parameters;
  double most = 0;  // parameters, bytes or seconds; 0: as the configuration's own
};
// Refuses, as `option`, what it does not know.
Budget parse_budget(const std::string& text, const char* option = "--budget");
std::string cost_text(Budget::Kind kind, double cost);

// A shape, and what is known of it.
struct Candidate {
  std::int64_t id = 0;
  ModelShape shape;
  double cost = 0;
  std::int64_t parent = -1;                  // whose shape it varies; -1: drawn
  std::map<std::int64_t, double> loss = {};  // held out, by the steps trained
};

struct SearchOptions {
  std::int64_t steps = 0;  // of a whole training
  double budget = 0;
  std::int64_t candidates = 8;   // shapes to begin with, the configuration's among them where it is within the budget
  std::int64_t keep = 2;         // one in so many goes on to the next rung
  std::int64_t rungs = 3;        // the last has all steps, the one before 1/keep of them, …
  std::int64_t generations = 1;  // of evolution after that
  std::int64_t children = 2;     // of each
  std::uint64_t seed = 1;
  ShapeSpace::Cost cost = {};
  // The held-out losses after so many steps in all, in the order of `who`; one that is missing: it was asked to stop.
  std::function<std::vector<std::optional<double>>(std::span<const Candidate* const> who, std::int64_t steps)> train =
      {};
  std::function<void(const Candidate&, std::int64_t steps)> trained = {};  // each loss as it becomes known
};

struct SearchResult {
  std::vector<Candidate> candidates;      // by id
  std::int64_t best = -1;                 // by the loss after all steps; -1: none got so far
  std::optional<std::int64_t> base = {};  // the configuration's shape, where it was trained to the end
  bool stopped = false;
};

// Successive halving, then evolution. Shapes that use the budget are drawn; all are trained for a few steps, the better
// part goes on, and so on; the configuration's own shape goes all the way, as the one to beat. Then the two best are
// varied, and each child is trained for all steps. The same options and losses give the same candidates in the same
// order, so a search whose losses are remembered goes on where it was.
SearchResult search(const ShapeSpace& space, const SearchOptions& options);

// Loss against cost in characters, by candidate: those of the most steps alone are comparable, so others are left out.
std::string picture(const SearchResult& result, Budget::Kind kind, int width = 60, int height = 10);

}  // namespace trireme::compress
