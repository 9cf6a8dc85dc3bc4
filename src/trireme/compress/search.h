#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "trireme/train/trainer.h"

namespace trireme::compress {

// What a shape may cost: "params=2M", "bytes=8MiB" of weights in f32, "step=20ms" or "decode=1ms" as the simulator
// predicts them for this machine (`trireme calibrate`).
struct Budget {
  enum class Kind { parameters, bytes, step, decode };
  Kind kind = Kind::parameters;
  double most = 0;  // parameters, bytes or seconds
};
// Refuses, as --budget, what it does not know.
Budget parse_budget(const std::string& text);
std::string cost_text(Budget::Kind kind, double cost);

// A model's shape, and what is known of it.
struct Candidate {
  std::int64_t id = 0;
  std::int64_t layers = 0, width = 0, heads = 0, ffn = 0;
  double cost = 0;
  std::int64_t parent = -1;             // whose shape it changes; -1: drawn
  std::map<std::int64_t, double> loss = {};  // held out, by the steps trained
};

struct SearchOptions {
  train::Config base;  // data, optimizer, and the shape to beat
  Budget budget;
  std::int64_t candidates = 8;   // shapes to begin with, the base's among them where it is within the budget
  std::int64_t keep = 2;         // one in so many goes on to the next rung
  std::int64_t rungs = 3;        // the last has all of train.steps, the one before 1/keep of them, …
  std::int64_t generations = 1;  // of evolution after that
  std::int64_t children = 2;     // of each
  std::uint64_t seed = 1;
  std::filesystem::path folder;  // search.jsonl, and a run folder for each candidate
  bool keep_runs = true;         // those that were dropped, too
  std::function<train::Request(const train::Metrics&)> request = {};
  std::function<void(const std::string&)> say = {};                       // a line of the table
  std::function<void(const Candidate&, std::int64_t step)> on_step = {};  // while one trains
  LogSink log = {};
};

struct SearchResult {
  std::vector<Candidate> candidates;
  std::int64_t best = -1;                 // by the loss after all steps
  std::optional<std::int64_t> base = {};  // the base's shape, where it was trained to the end
  std::int64_t trained_steps = 0;         // in all
  bool stopped = false;                   // by a request: the same command goes on
};

// Successive halving, then evolution: shapes near the budget are drawn, all are trained for a few steps, the better
// half goes on, and so on; then the best are varied. Each training is a run of its own, so that an interrupted search
// goes on where it was, and the same options give the same result.
SearchResult search(const SearchOptions& options, const train::Registry& registry);

// The cost of a configuration's model.
double cost_of(const train::Config& config, Budget::Kind kind, const train::Registry& registry);

// Loss against cost in characters, by candidate.
std::string picture(const SearchResult& result, Budget::Kind kind, int width = 64, int height = 12);

}  // namespace trireme::compress
