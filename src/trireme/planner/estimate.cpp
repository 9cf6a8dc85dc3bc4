#include "trireme/planner/estimate.h"

#include <algorithm>
#include <cmath>

#include "trireme/planner/stage_cut.h"
#include "trireme/simulator/collective_time.h"

namespace trireme::planner {
namespace {

using comm::Collective;
using simulator::Spread;
using Kind = program::PipelineName::Kind;

double whole(const LayerCost& cost) { return cost.forward + cost.backward + cost.weight_gradient; }

void add(LayerCost& sum, const LayerCost& layer, bool first) {
  sum.forward += layer.forward;
  sum.backward += layer.backward;
  sum.weight_gradient += layer.weight_gradient;
  sum.communication += layer.communication;
  sum.saved += layer.saved;
  sum.transient = std::max(sum.transient, layer.transient);
  sum.message = layer.message;
  sum.state += layer.state;
  if (!first) sum.state += layer.tied;
}

// Of a gradient's bytes, those on the wire.
double wire_share(Compression compression) {
  switch (compression) {
    case Compression::bf16: return 0.5;
    case Compression::int8: return 0.25;
    case Compression::configured: break;
  }
  return 1;
}

}  // namespace

std::int64_t Estimator::micro_batches(const Candidate& c) const { return batch_ / c.dp / c.layer.micro_batch; }

double Estimator::state_bytes(const StateBytes& s, const Candidate& c) const {
  StateBytes here = s;
  if (c.offload.optimizer) here.masters = here.optimizer = 0;
  return here.sharded(c.zero, c.dp);
}

double Estimator::kept(const Candidate& c, double saved) {
  // What is read again at once stays.
  constexpr double kStay = 0.1;
  return c.offload.activations ? kStay * saved : saved;
}

double Estimator::moved(double bytes) const {
  const cluster::Tier& tier = cluster_.device.kind == "cpu" ? cluster_.disk : cluster_.host;
  return tier.bandwidth > 0 ? bytes / tier.bandwidth : 0;
}

// Micro-batches whose activations a stage holds, in parts of a chunk.
double Estimator::held(const Candidate& c, int stage) const {
  const auto m = static_cast<double>(micro_batches(c));
  if (c.pp == 1) return 1;
  const double ahead = c.pp - stage;
  switch (c.pipeline.kind) {
    case Kind::gpipe: return m;
    case Kind::sequential: return 1;
    case Kind::interleaved:
      return std::min(m * c.pipeline.chunks, 2 * (ahead - 1) + (c.pipeline.chunks - 1) * c.pp + 1);
    default: return std::min(m, ahead);
  }
}

Estimator::Parts Estimator::cut(const Candidate& c, const Profile& profile) {
  const std::size_t count = profile.layers.size();
  const auto part_of = [&](std::size_t first, std::size_t last) {
    LayerCost sum;
    for (std::size_t i = first; i < last; ++i) add(sum, profile.layers[i], first == 0);
    return sum;
  };
  const int chunks = c.pp > 1 ? c.pipeline.chunks : 1;
  // Sums over the layers before each: of their states, of those shared with the first layer, of what they save.
  std::vector<double> states(count + 1, 0), shared(count + 1, 0), saved(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    states[i + 1] = states[i] + state_bytes(profile.layers[i].state, c);
    shared[i + 1] = shared[i] + state_bytes(profile.layers[i].tied, c);
    saved[i + 1] = saved[i] + profile.layers[i].saved;
  }
  const auto fits = [&](std::size_t part, std::size_t first, std::size_t last) {
    const double own = states[last] - states[first] + (first > 0 ? shared[last] - shared[first] : 0);
    const double waits = kept(c, saved[last] - saved[first]) * held(c, static_cast<int>(part) % c.pp) / chunks;
    return limit_ <= 0 || (own + waits) * chunks <= limit_;
  };
  Parts parts;
  parts.layers = c.stages;
  if (parts.layers.empty() && c.parts() == 1) parts.layers = {static_cast<std::int64_t>(count)};
  if (parts.layers.empty()) {
    std::vector<double> seconds;
    for (const LayerCost& layer : profile.layers) seconds.push_back(whole(layer));
    std::vector<std::int64_t>& known = by_time_[{c.layer, c.parts()}];
    if (known.empty()) known = balanced_parts(seconds, c.parts());
    parts.layers = known;
    std::size_t at = 0;
    bool all = !known.empty();
    for (std::size_t p = 0; p < known.size() && all; at += static_cast<std::size_t>(known[p++]))
      all = fits(p, at, at + static_cast<std::size_t>(known[p]));
    // Another cut may fit; where the whole does not, none does.
    if (!all) {
      if (states[count] <= limit_ * c.pp)
        if (const auto other = balanced_parts(seconds, c.parts(), fits); !other.empty()) parts.layers = other;
    }
  }
  std::size_t at = 0;
  for (const std::int64_t layers : parts.layers) {
    parts.cost.push_back(part_of(at, at + static_cast<std::size_t>(layers)));
    at += static_cast<std::size_t>(layers);
  }
  return parts;
}

Estimate Estimator::of(const Candidate& c, const Profile& profile) {
  const Parts parts = cut(c, profile);
  const auto m = static_cast<double>(micro_batches(c));
  const auto chunks = static_cast<double>(c.pp > 1 ? c.pipeline.chunks : 1);
  // Ranks of a CPU share its cores; the layers' costs are those of one.
  double crowd = 1;
  if (cluster_.device.kind == "cpu") {
    const auto here = static_cast<double>(std::min<std::int64_t>(cluster_.node.devices, c.ranks()));
    crowd = here / static_cast<double>(std::max<std::int64_t>(1, cluster_.node.cores)) * cluster_.node.busy_slowdown;
  }
  const Spread replicas = simulator::spread_of(cluster_, c.dp, c.layer.ranks());
  const auto took = [&](Collective collective, double bytes) {
    if (c.dp == 1 || bytes <= 0) return 0.0;
    const simulator::Duration d =
        simulator::collective_time(cluster_, collective, bytes, replicas, comm::Algorithm::automatic);
    return simulator::seconds_together(cluster_, d);
  };
  Estimate estimate;
  estimate.stages = parts.layers;
  // Sharded over replicas, gradients of a layer are whole until they are scattered, and weights while they are used.
  double whole_layers = 0;
  for (const LayerCost& layer : profile.layers)
    whole_layers =
        std::max(whole_layers, (c.zero >= 2 ? layer.state.gradients : 0) + (c.zero >= 3 ? 2 * layer.state.weights : 0));
  double sum = 0, largest = 0, exposed = 0, update = 0, weight_gradients = 0, message = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    LayerCost own;
    double transient = 0;
    for (std::size_t p = static_cast<std::size_t>(stage); p < parts.cost.size(); p += static_cast<std::size_t>(c.pp)) {
      const LayerCost& part = parts.cost[p];
      transient = std::max(transient, part.transient);
      add(own, part, true);
    }
    const double states = state_bytes(own.state, c);
    const double waits = kept(c, own.saved) * held(c, stage) / chunks;
    estimate.least_bytes = std::max(estimate.least_bytes, states + (c.offload.activations ? 0 : waits));
    estimate.bytes = std::max(estimate.bytes, states + waits + transient + whole_layers);
    double seconds = whole(own) * crowd;
    if (c.offload.activations) {
      const double copies = moved(own.saved - kept(c, own.saved));
      seconds = std::max(own.forward * crowd, copies) + std::max((own.backward + own.weight_gradient) * crowd, copies);
    }
    // Gradients and weights between replicas: what backward does not hide.
    const double backward = (own.backward + own.weight_gradient) * crowd;
    const double low = own.state.weights;
    const double gradients = own.state.gradients * wire_share(c.compress);
    double after = 0;
    const double hidden = overlap_ ? 0.8 * backward : 0;
    if (c.zero == 0) {
      after = std::max(0.0, took(Collective::all_reduce, gradients) - hidden);
    } else if (c.zero == 1) {
      after = std::max(0.0, took(Collective::reduce_scatter, gradients) - hidden) + took(Collective::all_gather, low);
    } else {
      const double scatter = took(Collective::reduce_scatter, gradients);
      const double gather = took(Collective::all_gather, low);
      if (c.zero == 2) {
        seconds += overlap_ ? std::max(0.0, scatter - hidden) : scatter;
        after = gather;
      } else {
        const double moved = scatter + 2 * gather;
        seconds = overlap_ ? std::max(seconds * 1.05, moved) + gather / static_cast<double>(profile.layers.size())
                           : seconds + moved;
      }
    }
    const double bytes = own.state.masters + own.state.weights + own.state.gradients + own.state.optimizer;
    const double share = c.zero > 0 ? 1.0 / c.dp : 1;
    double own_update = profile.update_per_byte * bytes * share * crowd;
    if (c.offload.optimizer)
      own_update = std::max(own_update, 2 * moved((own.state.masters + own.state.optimizer) * share));
    update = std::max(update, own_update);
    exposed = std::max(exposed, after);
    sum += seconds;
    if (seconds > largest) {
      largest = seconds;
      weight_gradients = own.weight_gradient * crowd;
    }
    if (stage + 1 < c.pp && !parts.cost.empty()) {
      const Spread next = simulator::spread_of(cluster_, 2, c.dp * c.layer.ranks());
      const simulator::Duration d =
          simulator::message_time(cluster_, parts.cost[static_cast<std::size_t>(stage)].message, next);
      message = std::max(message, simulator::seconds_together(cluster_, d));
    }
  }
  const double others = sum - largest;
  estimate.seconds = m * largest;
  if (c.pp > 1) {
    switch (c.pipeline.kind) {
      case Kind::sequential: estimate.seconds = m * sum; break;
      case Kind::interleaved:
        estimate.seconds += others / chunks;
        // A round that is not full takes as long as one that is.
        estimate.seconds += (std::ceil(m / c.pp) * c.pp - m) * largest / chunks;
        break;
      case Kind::zero_bubble:
      case Kind::zero_bubble_auto: estimate.seconds += std::max(0.0, others - 2 * (c.pp - 1) * weight_gradients); break;
      default: estimate.seconds += others;
    }
    estimate.seconds += 2 * (c.pp - 1) * message;
    if (c.pipeline.kind == Kind::interleaved) estimate.seconds += 2 * (c.pp - 1) * (chunks - 1) * message;
  }
  estimate.seconds += exposed + update + cluster_.step;
  return estimate;
}

}  // namespace trireme::planner
