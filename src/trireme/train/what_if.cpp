#include "trireme/train/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/ir/axes.h"
#include "trireme/planner/trials.h"

namespace trireme::train {
namespace {

struct Saving {
  std::vector<std::string> settings;
  bool changes_numbers = false;
};

// As train.micro_batch counts: of one replica.
std::int64_t replica_rows(const Config& config) {
  return micro_batch_rows(config) / mesh_of(config).size_of(ir::kDataAxis);
}

std::int64_t share_of(const Config& config) { return config.train.batch / mesh_of(config).size_of(ir::kDataAxis); }

// The largest divisor of a replica's rows that is at most half of so many.
std::int64_t half_of(const Config& config, std::int64_t rows) {
  const std::int64_t share = share_of(config);
  std::int64_t half = std::max<std::int64_t>(1, rows / 2);
  while (share % half != 0) --half;
  return half;
}

std::string micro_batch_of(std::int64_t rows) { return fmt::format("train.micro_batch={}", rows); }

constexpr const char* kSmallBuckets = "parallel.bucket=64KiB";
bool gathers_in_large_buckets(const Config& config) {
  return config.parallel.zero >= 2 && config.parallel.bucket.count > std::uint64_t{64} << 10;
}

// `smallest`: the micro-batches of what goes furthest.
std::vector<Saving> savings(const Config& config, std::int64_t smallest) {
  std::vector<Saving> all;
  const auto add = [&](const std::string& key, const std::vector<std::string>& values, bool changes_numbers) {
    for (const std::string& value : values)
      if (value_text(config, key) != fmt::format("\"{}\"", value))
        all.push_back({{fmt::format("{}={}", key, value)}, changes_numbers});
  };
  add("memory.remat", {"selective", "sqrt", "full"}, false);
  add("memory.offload", {"activations", "optimizer", "all"}, false);
  if (mesh_of(config).size_of(ir::kTensorAxis) > 1) add("memory.activations", {"sharded"}, false);
  add("memory.activations", {"bf16", "int8"}, true);
  if (config.train.precision == Precision::f32) add("train.precision", {"bf16"}, true);
  if (replica_rows(config) > 1) all.push_back({{micro_batch_of(half_of(config, replica_rows(config)))}, false});
  // Where gradients are sharded, whole ones wait in buckets, and sums of several micro-batches are whole too: there
  // fewer micro-batches and smaller buckets may need less.
  const bool sharded = gathers_in_large_buckets(config);
  const std::string small = kSmallBuckets;
  if (sharded) {
    all.push_back({{"memory.remat=full", small}, false});
    for (std::int64_t rows = share_of(config); rows > 1; rows /= 2)
      if (rows != replica_rows(config) && share_of(config) % rows == 0)
        all.push_back({{micro_batch_of(rows), "memory.remat=full", small}, false});
  }
  // What keeps the numbers and goes furthest.
  const auto add_furthest = [&](std::vector<std::string> settings) {
    if (smallest != replica_rows(config)) settings.insert(settings.begin(), micro_batch_of(smallest));
    all.push_back({settings, false});
    if (!sharded) return;
    settings.push_back(small);
    all.push_back({settings, false});
  };
  if (smallest != replica_rows(config)) add_furthest({"memory.remat=full"});
  add_furthest({"memory.remat=full", "memory.offload=all", "memory.offload_policy=all"});
  return all;
}

WhatIf result_of(const planner::Tried& tried, const Saving& saving) {
  return {.settings = saving.settings,
          .peak = tried.peak,
          .time = tried.seconds,
          .changes_numbers = saving.changes_numbers,
          .refused = tried.refused,
          .tried = tried.tried};
}

// Of a step with this saving, as predicted from the configured one.
double instructions_of(const Saving& saving, const Config& config, const Compiled& configured,
                       const models::Families& families) {
  Config changed = config;
  for (const std::string& setting : saving.settings) apply_setting(changed, setting, families);
  const double micro_batches =
      static_cast<double>(micro_batch_rows(config)) / static_cast<double>(micro_batch_rows(changed));
  return static_cast<double>(configured.checked.instructions) * micro_batches;
}

// How many of the list are left out, from the first on, so that the rest has at most so many instructions.
std::size_t left_out(const std::vector<Saving>& list, const Config& config, const Compiled& configured,
                     const models::Families& families, double instructions) {
  for (std::size_t i = list.size(); i-- > 0;) {
    instructions -= instructions_of(list[i], config, configured, families);
    if (instructions < 0) return std::min(i + 1, list.size() - 1);
  }
  return 0;
}

// What each saving would give, times as multiples of `plain` seconds.
std::vector<WhatIf> try_savings(const std::vector<Saving>& list, const Config& config, const Registry& registry,
                                const CompileOptions& options, double plain, const planner::TrialOptions& trials) {
  const auto settle = [&](std::size_t i) {
    Config changed = config;
    for (const std::string& setting : list[i].settings) apply_setting(changed, setting, registry.models);
    changed.memory.limit = {};  // what it needs, whether or not that is allowed
    check(changed, registry.models);
    Planned planned = make_plan(changed, registry, options);
    return planner::Settled{std::move(planned.graphs), std::move(planned.plan)};
  };
  const std::vector<planner::Tried> tried = planner::try_plans(list.size(), settle, trials);
  std::vector<WhatIf> results;
  for (std::size_t i = 0; i < list.size(); ++i) {
    results.push_back(result_of(tried[i], list[i]));
    results.back().time /= plain;
  }
  return results;
}

using Settings = std::vector<std::string>;

Settings way_of(Settings settings) {
  std::erase_if(settings, [](const std::string& setting) { return setting.starts_with("train.micro_batch="); });
  return settings;
}

// For ways of saving, the largest micro-batches with which each fits into a limit, all ways at once. Smaller ones need
// not need less memory: the sums of several are kept whole where those of one are sharded at once, and weights that are
// gathered for each of them wait. So sizes are tried one after the other, from all rows at once; a step has as many
// instructions as micro-batches, so that those before the last have few.
class MicroBatches {
 public:
  MicroBatches(const Config& config, const Registry& registry, const CompileOptions& options,
               const Compiled& configured, std::uint64_t limit, const std::vector<WhatIf>& known, double instructions)
      : config_(config),
        registry_(registry),
        options_(options),
        configured_(configured),
        limit_(limit),
        known_(known),
        instructions_(instructions),
        plain_(planner::tried(configured).seconds) {
    for (std::int64_t rows = share_of(config); rows > 0; --rows)
      if (share_of(config) % rows == 0) sizes_.push_back(rows);
  }

  bool fits(const WhatIf& s) const { return s.refused.empty() && s.tried && !s.changes_numbers && s.peak <= limit_; }

  // Least time of what is known to fit; infinite: nothing does.
  double best(bool offloaded) const {
    double least = std::numeric_limits<double>::infinity();
    for (const std::vector<WhatIf>* list : {&known_, &found_})
      for (const WhatIf& s : *list)
        if (fits(s) && (offloaded || !offloads(s.settings))) least = std::min(least, s.time);
    return least;
  }

  // `least`: the smallest micro-batches that are tried.
  void search(const std::vector<Settings>& ways, std::int64_t least) {
    std::vector<Settings> open = ways;
    for (const std::int64_t rows : sizes_) {
      if (rows < least) return;
      std::vector<Saving> list;
      std::vector<WhatIf> results;  // known already, then those of the list
      for (const Settings& way : open) {
        Saving saving{way, false};
        if (rows != replica_rows(config_)) saving.settings.insert(saving.settings.begin(), micro_batch_of(rows));
        const auto whole = std::find_if(known_.begin(), known_.end(),
                                        [&](const WhatIf& s) { return s.tried && s.settings == saving.settings; });
        if (whole != known_.end()) {
          results.push_back(*whole);
          continue;
        }
        const double more = instructions_of(saving, config_, configured_, registry_.models);
        if (more > instructions_) {
          all_tried_ = false;
          continue;
        }
        instructions_ -= more;
        list.push_back(std::move(saving));
      }
      for (WhatIf& s : try_savings(list, config_, registry_, options_, plain_, {.threads = options_.threads})) {
        if (fits(s)) found_.push_back(s);
        results.push_back(std::move(s));
      }
      // Smaller micro-batches take no less time: what is slow with these is not looked at further.
      open.clear();
      for (const WhatIf& s : results)
        if (!fits(s) && (!s.refused.empty() || s.time < best(true))) open.push_back(way_of(s.settings));
      if (open.empty()) return;
    }
  }

  bool all_tried() const { return all_tried_; }
  std::vector<WhatIf> found() && { return std::move(found_); }

 private:
  static bool offloads(const Settings& settings) {
    return std::any_of(settings.begin(), settings.end(),
                       [](const std::string& setting) { return setting.starts_with("memory.offload="); });
  }

  const Config& config_;
  const Registry& registry_;
  const CompileOptions& options_;
  const Compiled& configured_;
  std::uint64_t limit_;
  const std::vector<WhatIf>& known_;
  double instructions_;
  double plain_;
  std::vector<std::int64_t> sizes_;  // of micro-batches, the largest first
  std::vector<WhatIf> found_;
  bool all_tried_ = true;
};

// Savings combined, where none alone fits: from the smallest peaks known, one choice of one kind is changed at a time,
// and the smallest of what comes out is where the next round begins.
class Combinations {
 public:
  Combinations(const Config& config, const Registry& registry, const CompileOptions& options,
               const Compiled& configured, double instructions)
      : config_(config),
        registry_(registry),
        options_(options),
        configured_(configured),
        instructions_(instructions),
        plain_(planner::tried(configured).seconds) {
    kinds_.emplace_back(1);
    for (std::int64_t rows = 1; rows <= share_of(config); ++rows)
      if (share_of(config) % rows == 0 && rows != replica_rows(config)) kinds_.back().push_back({micro_batch_of(rows)});
    const auto add = [&](const std::string& key, const std::vector<std::string>& values) {
      kinds_.emplace_back(1);
      for (const std::string& value : values)
        if (value_text(config, key) != fmt::format("\"{}\"", value))
          kinds_.back().push_back({fmt::format("{}={}", key, value)});
    };
    add("memory.remat", {"none", "selective", "sqrt", "full"});
    if (mesh_of(config).size_of(ir::kTensorAxis) > 1) add("memory.activations", {"sharded"});
    kinds_.push_back({{},
                      {"memory.offload=optimizer"},
                      {"memory.offload=activations", "memory.offload_policy=all"},
                      {"memory.offload=all", "memory.offload_policy=all"}});
    if (gathers_in_large_buckets(config)) kinds_.push_back({{}, {kSmallBuckets}});
  }

  // Rounds until something fits, nothing is smaller any more, or there are no instructions left.
  void search(const std::vector<WhatIf>& known, std::uint64_t limit) {
    for (const WhatIf& s : known)
      if (s.tried && !s.changes_numbers) add(s);
    // What goes furthest may be refused for one choice alone.
    if (known.size() > 1) expand(known.back().settings);
    std::size_t least = least_peak();
    for (bool smaller = true; smaller && least > limit;) {
      std::vector<const Point*> open;
      for (const Point& p : points_)
        if (!p.expanded && p.peak != kUnknown) open.push_back(&p);
      constexpr std::size_t kBegun = 3;
      std::stable_sort(open.begin(), open.end(), [](const Point* a, const Point* b) { return a->peak < b->peak; });
      if (open.size() > kBegun) open.resize(kBegun);
      std::vector<Settings> begun;
      for (const Point* p : open) begun.push_back(p->settings);
      for (const Settings& settings : begun) expand(settings);
      smaller = std::exchange(least, least_peak()) > least;
    }
  }

  bool all_tried() const { return all_tried_; }
  std::vector<WhatIf> found() && { return std::move(found_); }

 private:
  static constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();
  struct Point {
    Settings settings;
    std::size_t peak = kUnknown;
    bool expanded = false;
  };

  void add(const WhatIf& s) {
    if (find(s.settings) == nullptr) points_.push_back({s.settings, s.refused.empty() ? s.peak : kUnknown});
  }
  Point* find(Settings settings) {
    std::sort(settings.begin(), settings.end());
    for (Point& p : points_) {
      Settings other = p.settings;
      std::sort(other.begin(), other.end());
      if (other == settings) return &p;
    }
    return nullptr;
  }
  std::size_t least_peak() const {
    std::size_t least = kUnknown;
    for (const Point& p : points_) least = std::min(least, p.peak);
    return least;
  }

  // All that differ from it in one kind, and have not been tried.
  void expand(const Settings& from) {
    if (Point* p = find(from)) p->expanded = true;
    std::vector<std::pair<double, Saving>> changed;  // with its instructions
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      for (const Settings& choice : kinds_[kind]) {
        Settings settings;
        for (std::size_t other = 0; other < kinds_.size(); ++other) {
          const Settings& made = other == kind ? choice : chosen(kinds_[other], from);
          settings.insert(settings.end(), made.begin(), made.end());
        }
        if (find(settings) != nullptr) continue;
        const Saving saving{settings, false};
        changed.emplace_back(instructions_of(saving, config_, configured_, registry_.models), saving);
      }
    // As many as there can be.
    std::stable_sort(changed.begin(), changed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Saving> list;
    for (const auto& [more, saving] : changed) {
      if (more > instructions_) {
        all_tried_ = false;
        break;
      }
      instructions_ -= more;
      points_.push_back({saving.settings});
      list.push_back(saving);
    }
    for (const WhatIf& s : try_savings(list, config_, registry_, options_, plain_, {.threads = options_.threads})) {
      find(s.settings)->peak = s.refused.empty() ? s.peak : kUnknown;
      found_.push_back(s);
    }
  }
  static const Settings& chosen(const std::vector<Settings>& kind, const Settings& from) {
    for (const Settings& choice : kind)
      if (!choice.empty() && std::find(from.begin(), from.end(), choice.front()) != from.end()) return choice;
    return kind.front();
  }

  const Config& config_;
  const Registry& registry_;
  const CompileOptions& options_;
  const Compiled& configured_;
  double instructions_;
  double plain_;
  std::vector<std::vector<Settings>> kinds_;  // the choices of each; the first is as configured
  std::vector<Point> points_;
  std::vector<WhatIf> found_;
  bool all_tried_ = true;
};

}  // namespace

std::int64_t smallest_micro_batch(const Config& config, const Compiled& configured, double instructions) {
  const std::int64_t rows = replica_rows(config);
  const double of_one_row = static_cast<double>(configured.checked.instructions) * static_cast<double>(rows);
  std::int64_t smallest = 1;
  while (smallest < rows &&
         (share_of(config) % smallest != 0 || of_one_row / static_cast<double>(smallest) > instructions))
    ++smallest;
  return smallest;
}

std::vector<WhatIf> what_if(const Config& config, const Registry& registry, const CompileOptions& options,
                            const Compiled& configured,
                            const std::function<void(std::size_t done, std::size_t total)>& on_one,
                            double instructions) {
  const std::vector<Saving> list = savings(config, smallest_micro_batch(config, configured, instructions));
  const planner::Tried as_configured = planner::tried(configured);
  std::vector<WhatIf> results = {result_of(as_configured, {})};
  results.front().time = 1;
  // The last are those that take longest.
  std::vector<WhatIf> tried = try_savings(list, config, registry, options, as_configured.seconds,
                                          {.threads = options.threads,
                                           .first = left_out(list, config, configured, registry.models, instructions),
                                           .on_one = on_one});
  std::move(tried.begin(), tried.end(), std::back_inserter(results));
  return results;
}

MicroBatchesThatFit largest_micro_batches(const Config& config, const Registry& registry, const CompileOptions& options,
                                          const Compiled& configured, std::uint64_t limit,
                                          const std::vector<WhatIf>& known, double instructions) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  MicroBatches search(config, registry, options, configured, limit, known, instructions);
  const std::vector<Settings> recomputed = {
      {}, {"memory.remat=selective"}, {"memory.remat=sqrt"}, {"memory.remat=full"}};
  if (search.best(true) == kNone) {
    // Where recomputing with micro-batches of one row is not enough, only larger ones than configured may be. Models
    // that are too short to recompute anything have not been tried with small ones.
    const bool too_short = std::any_of(known.begin(), known.end(), [](const WhatIf& s) {
      return s.tried && !s.refused.empty() && way_of(s.settings) == Settings{"memory.remat=full"};
    });
    search.search(recomputed, too_short ? 1 : replica_rows(config) + 1);
  } else {
    search.search(recomputed, 1);
    // What is offloaded takes long: only where nothing fits without.
    if (search.best(false) == kNone && config.memory.offload.none())
      search.search({{"memory.offload=optimizer"},
                     {"memory.remat=full", "memory.offload=optimizer"},
                     {"memory.remat=full", "memory.offload=all", "memory.offload_policy=all"}},
                    1);
  }
  const bool all_tried = search.all_tried();
  return {std::move(search).found(), all_tried};
}

CombinedSavings combine_savings(const Config& config, const Registry& registry, const CompileOptions& options,
                                const Compiled& configured, std::uint64_t limit, const std::vector<WhatIf>& known,
                                double instructions) {
  // No further choice takes half of what goes furthest.
  const WhatIf& furthest = known.back();
  if (furthest.tried && furthest.refused.empty() && furthest.peak / 2 > limit) return {};
  Combinations search(config, registry, options, configured, instructions);
  search.search(known, limit);
  const bool all_tried = search.all_tried();
  return {std::move(search).found(), all_tried};
}

}  // namespace trireme::train
