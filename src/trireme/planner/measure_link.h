#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/comm/communicator.h"

namespace trireme::planner {

// Sizes by which links are measured.
const std::vector<std::size_t>& link_sizes();

// Collective. What all-reduce, reduce-scatter and all-gather among these ranks take, and between two a message: of
// calls back to back. Of more ranks than `cores` each waits for the others, so what one takes is its share of that.
// Messages go one after the other, or to and fro: then half of both counts, with the latency.
enum class Messages : std::uint8_t { stream, round_trip };
std::vector<cluster::MeasuredCollective> measured_collectives(comm::Communicator& comm, std::size_t bytes, double cores,
                                                              Messages messages = Messages::stream);

// Collective. By rank: the first rank on the same machine.
std::vector<int> machines(comm::Communicator& world);

// Collective, of all processes of a launcher, on these machines: measures what connects them, in the place of what
// `cluster` says of its links. Those of rank 0's machine give `inside`, and one of each machine `network`, where there
// are several: a node then has as many ranks as that machine. Only rank 0's `cluster` counts.
void measure_links(cluster::Cluster& cluster, comm::Communicator& world, const std::vector<int>& machine,
                   const std::function<void(std::size_t done, std::size_t total)>& on_progress = {});

}  // namespace trireme::planner
