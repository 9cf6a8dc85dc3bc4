#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cluster {

// A described cluster: devices, how many there are in a node, what connects them, what they cost. Every constant by
// which programs are timed is here; the simulator has none of its own. Bytes, seconds, and operations or bytes per
// second throughout; bandwidths are one way.

// A kernel that was measured on its own. `sizes` are those of kernel_sizes() in simulator/kernel.h.
struct MeasuredKernel {
  std::string kernel;  // an op, and what else decides its speed: "matmul+tb"
  std::string dtype;
  std::int64_t threads = 1;
  std::vector<double> sizes;
  double seconds = 0;
  double crowded = 0;  // of a CPU: while other ranks keep the other cores busy; 0: as Node::busy_slowdown has it
  friend bool operator==(const MeasuredKernel&, const MeasuredKernel&) = default;
};

// A matrix product is computed in tiles, as many at once as the device has units. A unit needs some depth (k) to come
// to its speed.
struct Tile {
  double rows = 0;
  double columns = 0;
  double efficiency = 1;  // of the best tile's speed
  friend bool operator==(const Tile&, const Tile&) = default;
};

struct Device {
  std::string name;
  std::string kind = "gpu";               // gpu | cpu
  double memory = 0;                      // bytes
  double memory_bandwidth = 0;            // of a CPU: of all cores of the node together
  double memory_efficiency = 1;           // share of it that kernels reach
  double launch = 0;                      // seconds around each kernel
  double graph_launch = 0;                // around a replay of captured kernels; 0: as `launch`
  double graph_kernel = 0;                // around each kernel of a replay; 0: a quarter of `launch`
  double price = 0;                       // dollars per hour
  std::map<std::string, double> flops;    // peak by dtype, "f32", "tf32", "bf16" …; of a CPU: of one core
  std::map<std::string, double> kernels;  // share of the peak that an op reaches, "attention" = 0.6
  double matmul_efficiency = 1;           // share of the peak that the largest products reach
  std::int64_t units = 1;
  double depth = 0;  // a product of this k runs at half speed; 0: of any k at full speed
  std::vector<Tile> tiles;
  double communication_slowdown = 1;  // time of kernels while the device communicates, over that when it does not
  std::vector<MeasuredKernel> measured;
  friend bool operator==(const Device&, const Device&) = default;
};

struct Node {
  std::int64_t devices = 8;    // ranks of a node
  std::int64_t cores = 0;      // of a CPU: what its ranks share
  double busy_slowdown = 1;    // of a CPU: time of kernels while all cores are busy, over that of one rank alone
  double shared_slowdown = 1;  // of a CPU: further, where more ranks compute than there are cores and take turns
  double wake = 0;             // of a CPU: until a thread that slept goes on
  double busy_wake = 0;        // one that computes, where others compute on all cores
  double link_wake = 0;        // one that slept until a message was due, on an emulated link
  friend bool operator==(const Node&, const Node&) = default;
};

// A collective among threads that was measured.
struct MeasuredCollective {
  std::string collective;  // all_reduce | reduce_scatter | all_gather | all_to_all | message
  std::int64_t ranks = 2;
  double bytes = 0;
  double seconds = 0;
  friend bool operator==(const MeasuredCollective&, const MeasuredCollective&) = default;
};

// What connects ranks: within a node, or nodes.
struct Link {
  double bandwidth = 0;             // of one rank, of a message
  double collective_bandwidth = 0;  // bus bandwidth of large collectives; 0: as the links allow
  double latency = 0;               // of a hop
  double start = 0;                 // of a collective, once
  double tree_latency = 0;          // of a hop in a tree; 0: as `latency`
  std::int64_t sharing = 1;         // between nodes: ranks of a node that share one such link
  std::vector<MeasuredCollective> measured = {};
  friend bool operator==(const Link&, const Link&) = default;
};

// Another tier of memory.
struct Tier {
  double bandwidth = 0;
  double latency = 0;
  friend bool operator==(const Tier&, const Tier&) = default;
};

// A generation of software: what its kernels do differently, and how much of its communication is overlapped.
struct Software {
  std::string attention = "flash";  // flash | scores: written to memory and read again
  double forward_passes = 0;        // scores: times that all of them are read or written, forward
  double backward_passes = 0;
  double compute = 1;           // time of kernels, over that of the device's description
  double elementwise = 1;       // further, of those that are neither products, convolutions nor attention: more passes
  bool overlap_groups = true;   // gradients are reduced during backward
  bool captures = true;         // launches go together and are replayed as the program says; false: one by one
  double message_overhead = 0;  // seconds around a message between stages
  friend bool operator==(const Software&, const Software&) = default;
};

// Ranks that differ: "3", "8-15".
struct Ranks {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string device = {};  // of `devices`; empty: the same
  double speed = 1;         // of kernels
  double bandwidth = 1;     // of its links
  friend bool operator==(const Ranks&, const Ranks&) = default;
};

// Whose collectives decide the algorithm: NCCL takes the quicker of ring and tree; threads and MPI have rules of their
// own (comm/tuning.h), "emulated" is threads over an emulated link.
inline constexpr std::array<std::string_view, 4> kTransports = {"nccl", "threads", "emulated", "mpi"};

struct Cluster {
  std::string name;
  std::string source;  // where its figures are from
  std::string transport = "nccl";
  Device device;
  std::map<std::string, Device> devices;  // others, of mixed clusters
  Node node;
  Link inside;   // of a node
  Link network;  // between nodes
  Tier host;
  Tier disk;
  double host_bandwidth = 0;  // bytes per second that a host's cores read and write for each device
  double step = 0;            // seconds of a step outside its program
  std::string generation = "flash";
  std::map<std::string, Software> software;
  std::vector<Ranks> ranks;

  // The device of a rank.
  const Device& device_of(std::int64_t rank) const;
  const Ranks* override_of(std::int64_t rank) const;  // null: none
  const Software& current() const { return software.at(generation); }
  std::int64_t node_of(std::int64_t rank) const { return rank / node.devices; }
  // The link to other nodes that a rank shares with those next to it, counted over all nodes.
  std::int64_t link_of(std::int64_t rank) const {
    return node_of(rank) * node.devices + rank % node.devices / network.sharing;
  }
  // Of a run of so many ranks: those in its fullest node.
  std::int64_t ranks_of_node(std::int64_t world) const { return world < node.devices ? world : node.devices; }
  // Bytes that a rank of such a run may use: a GPU's memory, or an equal share of what the ranks of a CPU's node share.
  double memory_of(std::int64_t rank, std::int64_t world) const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// From TOML. Refuses, with file and line, unknown keys (with the nearest known one), missing ones and impossible
// values.
Cluster parse_cluster(std::string_view toml, const std::string& file);
// One of the built-in ones by name, or a file.
Cluster load_cluster(const std::string& name_or_file);
// TOML that reads back to the same.
std::string to_toml(const Cluster& cluster);
// A few lines for people.
std::string summary(const Cluster& cluster);

struct Builtin {
  std::string_view name;
  std::string_view toml;
};
const std::vector<Builtin>& builtin_clusters();

}  // namespace trireme::cluster
