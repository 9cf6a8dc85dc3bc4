#include "trireme/planner/layer_costs.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "trireme/planner/at_once.h"

namespace trireme::planner {

void LayerCosts::learn(const std::set<LayerKey>& wanted, std::size_t threads,
                       const std::function<bool(std::size_t done, std::size_t total)>& go_on) {
  std::vector<LayerKey> keys;
  for (const LayerKey& key : wanted)
    if (!profiles_.contains(key)) keys.push_back(key);
  std::vector<std::optional<Profile>> found(keys.size());
  std::vector<char> done(keys.size(), 0);
  std::atomic<bool> stopped = false;
  const std::thread::id here = std::this_thread::get_id();
  each_at_once(keys.size(), threads, [&](std::size_t i) {
    if (std::this_thread::get_id() == here && !go_on(i, keys.size())) stopped = true;
    if (stopped) return;
    found[i] = problem_.profile(keys[i]);
    done[i] = 1;
  });
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (done[i] != 0) keep(keys[i], std::move(found[i]));
}

const Profile* LayerCosts::keep(const LayerKey& key, std::optional<Profile> profile) {
  const auto at = profiles_.insert_or_assign(key, std::move(profile)).first;
  if (!at->second) return nullptr;
  const LayerCost all = at->second->total();
  const double kernels = all.forward + all.backward + all.weight_gradient - all.communication;
  const double rows = static_cast<double>(problem_.space.batch) / static_cast<double>(key.micro_batch);
  const cluster::Cluster& c = *problem_.cluster;
  const auto units =
      static_cast<double>(c.device.kind == "cpu" ? std::max<std::int64_t>(1, c.node.cores) : problem_.space.ranks);
  const double seconds = kernels * rows * key.ranks() / units;
  if (bound_ == 0 || seconds < bound_) bound_ = seconds;
  return &*at->second;
}

std::vector<LayerKey> LayerCosts::sources(const LayerKey& key) const {
  LayerKey most = key;
  most.micro_batch = problem_.proportional_from;
  if (key.micro_batch <= most.micro_batch || most.micro_batch < 2) return {key};
  LayerKey half = most;
  half.micro_batch /= 2;
  return {half, most};
}

const Profile* LayerCosts::of(const LayerKey& key) {
  if (const auto known = profiles_.find(key); known != profiles_.end())
    return known->second ? &*known->second : nullptr;
  const std::vector<LayerKey> from = sources(key);
  if (from.size() == 1) return keep(key, problem_.profile(key));
  const Profile* half = of(from[0]);
  const Profile* most = of(from[1]);
  if (half == nullptr || most == nullptr) return keep(key, std::nullopt);
  const double further = static_cast<double>(key.micro_batch - from[1].micro_batch) /
                         static_cast<double>(from[1].micro_batch - from[0].micro_batch);
  return keep(key, extended(*half, *most, further));
}

const Profile* LayerCosts::of_row(LayerKey key) {
  key.micro_batch = 1;
  return of(key);
}

LayerKey LayerCosts::preset_of(const LayerKey& key) {
  LayerKey preset;
  preset.tp = key.tp;
  preset.precision = key.precision;
  return preset;
}

LayerKey LayerCosts::chosen_of(const LayerKey& key) {
  LayerKey chosen = preset_of(key);
  chosen.sharding = key.sharding;
  return chosen;
}

bool LayerCosts::worthwhile(const LayerKey& key) {
  if (key.sharding == 0) return true;
  const auto [at, fresh] = worthwhile_.try_emplace(chosen_of(key), false);
  if (!fresh) return at->second;
  const Profile* chosen = of(chosen_of(key));
  const Profile* preset = of(preset_of(key));
  at->second = chosen != nullptr;
  if (chosen == nullptr || preset == nullptr) return at->second;
  const LayerCost a = chosen->total(), b = preset->total();
  at->second = a.forward + a.backward + a.weight_gradient < 0.999 * (b.forward + b.backward + b.weight_gradient);
  return at->second;
}

}  // namespace trireme::planner
