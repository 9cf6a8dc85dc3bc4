#pragma once
#include "trireme/cluster/cluster.h"
#include "trireme/comm/types.h"
#include "trireme/simulator/walk.h"

namespace trireme::simulator {

// How the ranks of a group are spread over nodes.
struct Spread {
  int ranks = 1;
  int nodes = 1;
  double per_link = 1;  // of a node's, those on one link between nodes
  double per_node() const { return static_cast<double>(ranks) / nodes; }
};

// What a collective takes among these ranks. `bytes` are those of the tensor before it is scattered or after it was
// gathered; of an all-to-all those that a rank has. N = ranks, S = bytes.
//
//   NCCL        the quicker of
//     ring      start + hops + 2S(N−1)/N over the bus bandwidth; reduce-scatter and all-gather half of it
//     tree      start + 2(ranks per node − 1 hops inside, log2 nodes hops outside) + 2S over the bus bandwidth
//   threads, MPI, emulated
//     the algorithm that the communicator chooses (comm/tuning.h), its steps and bytes by its law (comm/measure.h):
//     start + steps × latency + bytes sent over the bandwidth; threads' own as measured, between sizes by logarithms
//
// Between nodes the bus bandwidth is that of all links of the ranks in a node, but not more than within one. It is what
// they have alone: others that use those links at the same time share them in the walk (Actor::link).
Duration collective_time(const cluster::Cluster& cluster, comm::Collective collective, double bytes,
                         const Spread& spread, comm::Algorithm asked);
Duration message_time(const cluster::Cluster& cluster, double bytes, const Spread& spread);

// A group of ranks `stride` apart.
Spread spread_of(const cluster::Cluster& cluster, int ranks, int stride);
// Seconds of one of these where every rank of the cluster does the same at that time: without a walk.
double seconds_together(const cluster::Cluster& cluster, const Duration& duration);

}  // namespace trireme::simulator
