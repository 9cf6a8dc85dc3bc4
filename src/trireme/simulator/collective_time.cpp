#include "trireme/simulator/collective_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "trireme/comm/measure.h"
#include "trireme/comm/tuning.h"

namespace trireme::simulator {
namespace {

using cluster::Cluster;
using cluster::Link;
using comm::Collective;

double bus_bandwidth(const Cluster& c, const Spread& s) {
  const double inside = c.inside.collective_bandwidth > 0 ? c.inside.collective_bandwidth : c.inside.bandwidth;
  if (s.nodes == 1) return inside;
  const double outside = s.per_node() / s.per_link * c.network.bandwidth;
  const double together = s.per_node() > 1 ? std::min(inside, outside) : outside;
  return c.network.collective_bandwidth > 0 ? std::min(together, c.network.collective_bandwidth) : together;
}

Duration nccl(const Cluster& c, Collective collective, double bytes, const Spread& s) {
  const double n = s.ranks;
  const double bandwidth = bus_bandwidth(c, s);
  const Link& start = s.nodes == 1 ? c.inside : c.network;
  const double rounds = collective == Collective::all_reduce ? 2 : 1;
  const double outside = s.nodes == 1 ? 0 : rounds * (s.nodes - 1);
  const double hops = rounds * (n - 1);
  Duration ring;
  ring.resource = s.nodes == 1 ? Resource::inside : Resource::network;
  ring.latency = start.start + (hops - outside) * c.inside.latency + outside * c.network.latency;
  ring.busy = rounds * bytes * (n - 1) / n / bandwidth;
  if (collective != Collective::all_reduce) return ring;
  Duration tree = ring;
  const double hop = c.network.tree_latency > 0 ? c.network.tree_latency : c.network.latency;
  tree.latency = start.start + 2 * ((s.per_node() - 1) * c.inside.latency + std::log2(s.nodes) * hop);
  tree.busy = 2 * bytes / bandwidth;
  return tree.latency + tree.busy < ring.latency + ring.busy ? tree : ring;
}

// Between measured sizes by logarithms, beyond them by the bandwidth of the last.
std::optional<double> measured(const Link& link, const std::string& collective, std::int64_t ranks, double bytes) {
  const cluster::MeasuredCollective* below = nullptr;
  const cluster::MeasuredCollective* above = nullptr;
  for (const cluster::MeasuredCollective& m : link.measured) {
    if (m.collective != collective || m.ranks != ranks) continue;
    if (m.bytes <= bytes && (below == nullptr || m.bytes > below->bytes)) below = &m;
    if (m.bytes >= bytes && (above == nullptr || m.bytes < above->bytes)) above = &m;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return above->seconds;
  if (above == nullptr) return below->seconds * bytes / below->bytes;
  if (above == below) return above->seconds;
  const double at = std::log(bytes / below->bytes) / std::log(above->bytes / below->bytes);
  return below->seconds * std::pow(above->seconds / below->seconds, at);
}

Duration by_law(const Cluster& c, Collective collective, double bytes, const Spread& s, comm::Algorithm asked) {
  const comm::TransportKind kind = c.transport == "threads"    ? comm::TransportKind::threads
                                   : c.transport == "emulated" ? comm::TransportKind::emulated
                                                               : comm::TransportKind::mpi;
  const Link& link = s.nodes == 1 ? c.inside : c.network;
  const auto size = static_cast<std::size_t>(bytes);
  // Cores copy; an emulated link and a network do without.
  const Resource resource = s.nodes > 1                             ? Resource::network
                            : kind == comm::TransportKind::emulated ? Resource::inside
                                                                    : Resource::cores;
  comm::Algorithm algorithm = asked;
  if (algorithm == comm::Algorithm::automatic ||
      (algorithm == comm::Algorithm::native && kind == comm::TransportKind::emulated))
    algorithm = comm::choose({}, kind, collective, size, s.ranks);
  if (algorithm == comm::Algorithm::native)
    if (const auto seconds = measured(link, comm::name_of(collective), s.ranks, bytes)) return {0, *seconds, resource};
  if (collective == Collective::all_to_all) {
    const double others = s.ranks - 1;
    return {link.start + others * link.latency, bytes * others / s.ranks / link.bandwidth, resource};
  }
  const bool half = collective != Collective::all_reduce;
  if (half && (algorithm == comm::Algorithm::tree || algorithm == comm::Algorithm::sequential))
    algorithm = comm::Algorithm::ring;
  const comm::Law law = comm::law_of(kind, algorithm, size, 1, s.ranks);
  const double share = half && algorithm != comm::Algorithm::parallel ? 0.5 : 1;
  const double sent = half && algorithm == comm::Algorithm::parallel ? bytes * (s.ranks - 1) / s.ranks
                                                                     : share * static_cast<double>(law.sent);
  const double steps = share * static_cast<double>(law.steps);
  Duration d{link.start + steps * link.latency, sent / link.bandwidth, resource};
  if (kind == comm::TransportKind::emulated) d.sleeps = steps;
  return d;
}

}  // namespace

Duration collective_time(const Cluster& cluster, Collective collective, double bytes, const Spread& spread,
                         comm::Algorithm asked) {
  if (spread.ranks == 1) return {};
  Duration d = cluster.transport == "nccl" ? nccl(cluster, collective, bytes, spread)
                                           : by_law(cluster, collective, bytes, spread, asked);
  d.per_link = spread.per_link;
  return d;
}

Spread spread_of(const Cluster& cluster, int ranks, int stride) {
  const auto within = [&](std::int64_t places) {
    return static_cast<int>(std::clamp<std::int64_t>(places / stride, 1, ranks));
  };
  const int here = within(cluster.node.devices);
  return {ranks, (ranks + here - 1) / here,
          static_cast<double>(within(std::min(cluster.network.sharing, cluster.node.devices)))};
}

double seconds_together(const Cluster& cluster, const Duration& d) {
  const auto sharing = static_cast<double>(std::min(cluster.network.sharing, cluster.node.devices));
  return d.latency + d.busy * (d.resource == Resource::network ? sharing / d.per_link : 1);
}

Duration message_time(const Cluster& cluster, double bytes, const Spread& spread) {
  const Link& link = spread.nodes == 1 ? cluster.inside : cluster.network;
  const bool cores = spread.nodes == 1 && cluster.transport == "threads";
  const Resource resource = spread.nodes > 1 ? Resource::network : cores ? Resource::cores : Resource::inside;
  if (const auto seconds = measured(link, "message", 2, bytes)) return {0, *seconds, resource};
  Duration d{link.latency + cluster.current().message_overhead, bytes / link.bandwidth, resource};
  if (cluster.transport == "emulated") d.sleeps = 1;
  return d;
}

}  // namespace trireme::simulator
