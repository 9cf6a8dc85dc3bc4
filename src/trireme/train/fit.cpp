#include "trireme/train/fit.h"

#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::train {
namespace {

using planner::Scored;

// The configuration at a size, counted in steps of what grows.
class Sizes {
 public:
  Sizes(const Config& config, const Registry& registry, const FitRequest& request)
      : config_(config),
        grow_(request.grow),
        images_(registry.models.at(config.model.family).images),
        ranks_(request.plan.ranks) {
    const models::ModelConfig& m = config.model;
    if (grow_ == Grow::context && images_)
      refuse("model.family = \"{}\" has no context; --largest model or batch", m.family);
    if (!images_) group_ = m.kv_heads > 0 ? std::max<std::int64_t>(1, m.heads / m.kv_heads) : 1;
  }

  std::int64_t start() const {
    switch (grow_) {
      case Grow::model: return images_ ? config_.model.width : std::max<std::int64_t>(1, config_.model.heads / group_);
      case Grow::context: return std::max<std::int64_t>(1, config_.model.context / kContext);
      case Grow::batch: break;
    }
    return 1;
  }

  Config at(std::int64_t size) const {
    Config c = config_;
    models::ModelConfig& m = c.model;
    switch (grow_) {
      case Grow::model: {
        const std::int64_t before = m.width;
        if (images_) {
          m.width = size;
          break;
        }
        const std::int64_t head = config_.model.width / config_.model.heads;
        m.heads = size * group_;
        m.width = m.heads * head;
        if (m.kv_heads > 0) m.kv_heads = m.heads / group_;
        const auto scaled = [&](std::int64_t value) {
          return std::max<std::int64_t>(
              1, std::llround(static_cast<double>(value) * static_cast<double>(m.width) / static_cast<double>(before)));
        };
        m.layers = scaled(m.layers);
        if (m.ffn > 0) m.ffn = scaled(m.ffn);
        break;
      }
      case Grow::context: m.context = size * kContext; break;
      case Grow::batch:
        c.train.micro_batch = size;
        c.train.batch = size * ranks_;
        break;
    }
    return c;
  }

  std::string text(std::int64_t size) const {
    const Config c = at(size);
    switch (grow_) {
      case Grow::model:
        return images_ ? fmt::format("width {}", c.model.width)
                       : fmt::format("{} layers, width {}, {} heads", c.model.layers, c.model.width, c.model.heads);
      case Grow::context: return fmt::format("context {}", c.model.context);
      case Grow::batch: break;
    }
    return fmt::format("{} rows of a replica at once", size);
  }

 private:
  static constexpr std::int64_t kContext = 64;  // tokens of a step
  const Config& config_;
  Grow grow_;
  bool images_;
  int ranks_;
  std::int64_t group_ = 1;  // heads that share a key head
};

struct Tried {
  std::optional<Scored> best;  // nothing: no plan fits
  std::string why;
};

Tried try_size(const Config& config, const Registry& registry, PlanRequest plan, Grow grow) {
  plan.search.objective = planner::Objective::memory;
  plan.search.finalists = 2;
  if (grow == Grow::batch) plan.fixed.emplace_back("train.micro_batch");
  try {
    const PlanSearch search(config, registry, plan);
    planner::SearchResult result = search.run();
    if (result.best.empty()) return {std::nullopt, "the search was stopped"};
    return {result.best.front(), {}};
  } catch (const Error& e) {
    if (e.kind() != Error::Kind::request) throw;
    return {std::nullopt, e.message()};
  }
}

}  // namespace

Fit largest_fit(const Config& config, const Registry& registry, const FitRequest& request) {
  Config shaped = config;
  resolve_shape(shaped, registry, {.on_phase = request.plan.on_phase, .log = request.plan.log});
  // What the family derives from other sizes follows them again.
  shaped.model.ffn = config.model.ffn;
  const Sizes sizes(shaped, registry, request);
  Fit fit;
  std::optional<Scored> best;
  std::string why;
  const auto stopped = [&] { return request.plan.search.stop && request.plan.search.stop(); };
  const auto fits = [&](std::int64_t size) {
    if (request.on_try) request.on_try(sizes.text(size), fit.tried);
    ++fit.tried;
    Tried tried = try_size(sizes.at(size), registry, request.plan, request.grow);
    if (tried.best) {
      best = tried.best;
      if (request.on_fit) request.on_fit(sizes.text(size), *best);
    } else {
      why = tried.why;
    }
    return tried.best.has_value();
  };
  // The last that fits is in [low, high).
  std::int64_t low = 0;
  std::int64_t high = sizes.start();
  while (fits(high)) {
    low = high;
    high *= 2;
    if (stopped()) break;
  }
  Scored of_low = best.value_or(Scored{});
  while (high - low > 1 && !stopped()) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      low = middle;
      of_low = *best;
    } else {
      high = middle;
    }
  }
  fit.stopped = stopped();
  if (low == 0 && fit.stopped) return fit;
  if (low == 0) refuse("not even {} fits: {}", sizes.text(1), why);
  fit.config = sizes.at(low);
  fit.what = sizes.text(low);
  fit.next = fit.stopped ? "not known: the search was stopped, and a larger one may fit"
                         : fmt::format("{}: {}", sizes.text(high), why);
  fit.plan = of_low;
  PlanRequest last = request.plan;
  if (request.grow == Grow::batch) last.fixed.emplace_back("train.micro_batch");
  const PlanSearch search(fit.config, registry, last);
  fit.parameters = search.compiled(of_low.candidate).compiled.parameters();
  return fit;
}

std::vector<Offer> cheapest_clusters(const Config& config, const Registry& registry, const CheapestRequest& request) {
  std::vector<Offer> offers;
  const bool images = registry.models.at(config.model.family).images;
  for (const cluster::Cluster& cluster : request.clusters) {
    Offer offer{.cluster = cluster.name, .plan = {}};
    Offer quickest = offer;
    for (int nodes = 1; nodes <= request.max_nodes; nodes *= 2) {
      PlanRequest plan = request.plan;
      plan.cluster = cluster;
      plan.ranks = nodes * static_cast<int>(cluster.node.devices);
      if (request.on_try) request.on_try(fmt::format("{} × {}", plan.ranks, cluster.name));
      try {
        const PlanSearch search(config, registry, plan);
        const planner::SearchResult result = search.run();
        if (result.best.empty()) break;
        const double tokens =
            static_cast<double>(config.train.batch) * (images ? 1.0 : static_cast<double>(config.model.context));
        Offer own{.cluster = cluster.name, .ranks = plan.ranks, .plan = result.best.front()};
        own.seconds = request.tokens / tokens * own.plan.seconds;
        own.cost = own.seconds / 3600 * own.plan.price;
        if (quickest.ranks == 0 || own.seconds < quickest.seconds) quickest = own;
        if (own.seconds <= request.seconds) {
          offer = own;
          break;
        }
        // Twice the ranks that are hardly quicker will not be in time either.
        if (own.seconds > 0.98 * quickest.seconds && own.ranks != quickest.ranks) break;
      } catch (const Error& e) {
        if (e.kind() != Error::Kind::request) throw;
        offer.refused = e.message();
        if (quickest.ranks > 0) break;  // the batch has no more rows to share
      }
    }
    if (offer.ranks == 0 && quickest.ranks > 0)
      offer.refused =
          fmt::format("{} at the quickest, by {} devices", format_duration(quickest.seconds), quickest.ranks);
    if (offer.ranks > 0) offer.refused.clear();
    offers.push_back(offer);
  }
  std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return a.refused.empty() != b.refused.empty() ? a.refused.empty() : a.cost < b.cost;
  });
  return offers;
}

}  // namespace trireme::train
