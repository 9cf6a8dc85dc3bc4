#include "trireme/planner/measure_link.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "trireme/core/undisturbed.h"

namespace trireme::planner {
namespace {

using Clock = std::chrono::steady_clock;
using cluster::Link;
using cluster::MeasuredCollective;

// Of calls back to back, on all ranks together, as kernels are measured.
template <class Call>
double batch_seconds(comm::Communicator& comm, Call&& call) {
  constexpr int kBatches = 7;
  std::vector<double> seconds;
  std::int64_t calls = 1;
  call();
  for (int i = 0; i < kBatches + 1;) {
    comm.barrier();
    const auto begin = Clock::now();
    for (std::int64_t k = 0; k < calls; ++k) call();
    std::vector<double> took = {std::chrono::duration<double>(Clock::now() - begin).count()};
    comm.all_reduce(std::span(took), comm::Reduce::max);
    if (took[0] < 5e-4 && calls < 4096) {
      calls *= 2;
      continue;
    }
    if (i++ > 0) seconds.push_back(took[0] / static_cast<double>(calls));
  }
  return undisturbed(std::move(seconds));
}

}  // namespace

std::vector<int> machines(comm::Communicator& world) {
  using Name = std::array<std::uint8_t, 256>;
  Name own{};
  ::gethostname(reinterpret_cast<char*>(own.data()), own.size() - 1);
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::uint8_t>(own), std::span(all));
  std::vector<int> first;
  for (int r = 0; r < world.size(); ++r) {
    const auto name = [&](int of) { return all.begin() + static_cast<std::ptrdiff_t>(own.size()) * of; };
    int at = 0;
    while (!std::equal(name(at), name(at + 1), name(r))) ++at;
    first.push_back(at);
  }
  return first;
}

namespace {

// Latency and bandwidth are those of the smallest and the largest message.
void read_off(Link& link) {
  const MeasuredCollective* least = nullptr;
  const MeasuredCollective* most = nullptr;
  for (const MeasuredCollective& m : link.measured) {
    if (m.collective != "message") continue;
    if (least == nullptr || m.bytes < least->bytes) least = &m;
    if (most == nullptr || m.bytes > most->bytes) most = &m;
  }
  if (least == nullptr) return;
  link.latency = least->seconds;
  link.bandwidth = std::round((most->bytes - least->bytes) / std::max(1e-9, most->seconds - least->seconds));
}

}  // namespace

const std::vector<std::size_t>& link_sizes() {
  static const std::vector<std::size_t> sizes = {256, 4096, 32768, 262144, 2U << 20, 16U << 20};
  return sizes;
}

std::vector<MeasuredCollective> measured_collectives(comm::Communicator& comm, std::size_t bytes, double cores,
                                                     Messages messages) {
  std::vector<MeasuredCollective> all;
  std::vector<float> whole(bytes / sizeof(float), 0.0F);
  std::vector<float> slice(whole.size() / static_cast<std::size_t>(comm.size()));
  whole.resize(slice.size() * static_cast<std::size_t>(comm.size()));
  const double share = std::min(1.0, cores / comm.size());
  const auto keep = [&](const char* name, auto&& call) {
    const double seconds = batch_seconds(comm, call);
    all.push_back({name, comm.size(), static_cast<double>(bytes), seconds * share});
  };
  keep("all_reduce", [&] { comm.all_reduce(std::span(whole), comm::Reduce::sum); });
  keep("reduce_scatter", [&] { comm.reduce_scatter(std::span(whole), std::span(slice), comm::Reduce::sum); });
  keep("all_gather", [&] { comm.all_gather(std::span<const float>(slice), std::span(whole)); });
  if (comm.size() > 2) return all;
  const auto message = [&](int from) {
    if (comm.rank() == from)
      comm.send(std::as_bytes(std::span(whole)), 1 - from);
    else
      comm.recv(std::as_writable_bytes(std::span(whole)), from);
  };
  keep("message", [&] {
    message(0);
    if (messages == Messages::round_trip) message(1);
  });
  if (messages == Messages::round_trip) all.back().seconds /= 2;
  return all;
}

void measure_links(cluster::Cluster& cluster, comm::Communicator& world, const std::vector<int>& machine,
                   const std::function<void(std::size_t done, std::size_t total)>& on_progress) {
  const auto here = std::count(machine.begin(), machine.end(), 0);
  const auto nodes = static_cast<std::int64_t>(std::set<int>(machine.begin(), machine.end()).size());
  const double cores =
      cluster.node.cores > 0 ? static_cast<double>(cluster.node.cores) : std::numeric_limits<double>::infinity();
  // Two ranks of a level and all of it; the others wait.
  struct Group {
    Link* link;
    std::unique_ptr<comm::Communicator> comm;  // null: this rank is not in it
    double cores;
  };
  std::vector<Group> groups;
  const auto add = [&](Link& link, const std::vector<int>& members, double of_cores) {
    const bool in = std::find(members.begin(), members.end(), world.rank()) != members.end();
    groups.push_back({&link, world.split(in ? 0 : -1, world.rank()), of_cores});
  };
  const auto add_level = [&](Link& link, const std::vector<int>& members, double of_cores) {
    if (members.size() < 2) return;
    link.measured.clear();
    add(link, {members[0], members[1]}, of_cores);
    if (members.size() > 2) add(link, members, of_cores);
  };
  std::vector<int> local, leaders, everybody;
  for (int r = 0; r < world.size(); ++r) {
    everybody.push_back(r);
    if (machine[static_cast<std::size_t>(r)] == 0) local.push_back(r);
    if (machine[static_cast<std::size_t>(r)] == r) leaders.push_back(r);
  }
  add_level(cluster.inside, local, cores);
  constexpr double kOwnCores = std::numeric_limits<double>::infinity();
  add_level(cluster.network, leaders, kOwnCores);
  if (nodes > 1 && leaders.size() < everybody.size()) add(cluster.network, everybody, kOwnCores);
  std::size_t done = 0;
  for (const Group& group : groups)
    for (const std::size_t bytes : link_sizes()) {
      if (on_progress) on_progress(done++, groups.size() * link_sizes().size());
      if (group.comm) {
        const auto measured = measured_collectives(*group.comm, bytes, group.cores, Messages::round_trip);
        group.link->measured.insert(group.link->measured.end(), measured.begin(), measured.end());
      }
      world.barrier();
    }
  if (world.rank() != 0) return;
  cluster.transport = "mpi";
  read_off(cluster.inside);
  if (nodes == 1) {
    cluster.network = cluster.inside;
    return;
  }
  read_off(cluster.network);
  // A machine has one link to the others.
  cluster.node.devices = cluster.network.sharing = here;
}

}  // namespace trireme::planner
