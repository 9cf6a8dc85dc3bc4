#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "trireme/planner/search.h"

namespace trireme::planner {

// The costs of a problem's layers, by what decides them: each is worked out once.
class LayerCosts {
 public:
  // `problem` must outlive it.
  explicit LayerCosts(const Problem& problem) : problem_(problem) {}

  // Works out those that are not known, on `threads` threads. `go_on` is asked by the caller's thread between two;
  // after a no the rest stay unknown.
  void learn(const std::set<LayerKey>& keys, std::size_t threads,
             const std::function<bool(std::size_t done, std::size_t total)>& go_on);
  // Null: the model cannot be sharded so. What `learn` has not worked out is worked out here.
  const Profile* of(const LayerKey& key);
  // Of a single row. Their saved bytes grow with the rows.
  const Profile* of_row(LayerKey key);
  // The keys that a micro-batch's costs follow from: its own, or two smaller ones in whose proportion it grows.
  std::vector<LayerKey> sources(const LayerKey& key) const;
  // Whether shardings of their own are quicker than the preset, for so many ranks: often they come to the same. What is
  // compared to know it: one row, nothing else.
  bool worthwhile(const LayerKey& key);
  static LayerKey preset_of(const LayerKey& key);
  static LayerKey chosen_of(const LayerKey& key);
  // Seconds of the kernels alone, without anything between ranks, if all devices could share the rows evenly; the least
  // of all that were worked out.
  double bound() const { return bound_; }

 private:
  const Profile* keep(const LayerKey& key, std::optional<Profile> profile);

  const Problem& problem_;
  std::map<LayerKey, std::optional<Profile>> profiles_;
  std::map<LayerKey, bool> worthwhile_;
  double bound_ = 0;
};

}  // namespace trireme::planner
