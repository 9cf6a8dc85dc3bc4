#pragma once
#include "trireme/cluster/cluster.h"

// The keys of a cluster description, in their order: one list that reading and printing share. A visitor has a function
// for every kind of value, and `table`, `tables` and `list` for what is nested.
namespace trireme::cluster {

inline constexpr bool kRequired = true;
// Ranks, cores and units are counted in what fits an int, products of two of them in an std::int64_t.
inline constexpr std::int64_t kMaxCount = 1 << 20;

template <class V>
void visit(V& v, Tile& t) {
  v.number("rows", t.rows, 1, kRequired);
  v.number("columns", t.columns, 1, kRequired);
  v.share("efficiency", t.efficiency);
}

template <class V>
void visit(V& v, MeasuredKernel& m) {
  v.text("kernel", m.kernel, kRequired);
  v.text("dtype", m.dtype, kRequired);
  v.integer("threads", m.threads, 1);
  v.numbers("sizes", m.sizes);
  v.number("seconds", m.seconds, 0, kRequired);
  v.number("crowded", m.crowded, 0);
}

template <class V>
void visit(V& v, MeasuredCollective& m) {
  v.choice("collective", m.collective, {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "message"});
  v.integer("ranks", m.ranks, 2);
  v.factor("bytes", m.bytes, kRequired);
  v.number("seconds", m.seconds, 0, kRequired);
}

template <class V>
void visit(V& v, Device& d) {
  v.text("name", d.name, kRequired);
  v.choice("kind", d.kind, {"gpu", "cpu"});
  v.bytes("memory", d.memory, kRequired);
  v.bandwidth("memory_bandwidth", d.memory_bandwidth, kRequired);
  v.share("memory_efficiency", d.memory_efficiency);
  v.seconds("launch", d.launch);
  v.seconds("graph_launch", d.graph_launch);
  v.seconds("graph_kernel", d.graph_kernel);
  v.number("price", d.price, 0);
  v.share("matmul_efficiency", d.matmul_efficiency);
  v.integer("units", d.units, 1);
  v.number("depth", d.depth, 0);
  v.number("communication_slowdown", d.communication_slowdown, 1);
  v.figures("flops", d.flops, kRequired);
  v.figures("kernels", d.kernels);
  v.list("tiles", d.tiles);
  v.list("measured", d.measured);
}

template <class V>
void visit(V& v, Node& n) {
  v.integer("devices", n.devices, 1);
  v.integer("cores", n.cores, 0);
  v.number("busy_slowdown", n.busy_slowdown, 1);
  v.number("shared_slowdown", n.shared_slowdown, 1);
  v.seconds("wake", n.wake);
  v.seconds("busy_wake", n.busy_wake);
  v.seconds("link_wake", n.link_wake);
}

template <class V>
void visit(V& v, Link& l) {
  v.bandwidth("bandwidth", l.bandwidth, kRequired);
  v.bandwidth("collective_bandwidth", l.collective_bandwidth);
  v.seconds("latency", l.latency);
  v.seconds("start", l.start);
  v.seconds("tree_latency", l.tree_latency);
  v.integer("sharing", l.sharing, 1);
  v.list("measured", l.measured);
}

template <class V>
void visit(V& v, Tier& t) {
  v.bandwidth("bandwidth", t.bandwidth, kRequired);
  v.seconds("latency", t.latency);
}

template <class V>
void visit(V& v, Software& s) {
  v.choice("attention", s.attention, {"flash", "scores"});
  v.number("forward_passes", s.forward_passes, 0);
  v.number("backward_passes", s.backward_passes, 0);
  v.factor("compute", s.compute);
  v.factor("elementwise", s.elementwise);
  v.flag("overlap_groups", s.overlap_groups);
  v.flag("captures", s.captures);
  v.seconds("message_overhead", s.message_overhead);
}

template <class V>
void visit(V& v, Ranks& r) {
  v.integer("first", r.first, 0);
  v.integer("last", r.last, 0);
  v.text("device", r.device);
  v.number("speed", r.speed, 0);
  v.number("bandwidth", r.bandwidth, 0);
}

template <class V>
void visit(V& v, Cluster& c) {
  v.text("name", c.name, kRequired);
  v.text("source", c.source);
  v.choice("transport", c.transport, {kTransports.begin(), kTransports.end()});
  v.bandwidth("host_bandwidth", c.host_bandwidth);
  v.seconds("step", c.step);
  v.text("generation", c.generation);
  v.table("device", c.device, kRequired);
  v.table("node", c.node);
  v.table("inside", c.inside, kRequired);
  v.table("network", c.network);
  v.table("host", c.host);
  v.table("disk", c.disk);
  v.tables("software", c.software);
  v.tables("devices", c.devices);
  v.list("ranks", c.ranks);
}

}  // namespace trireme::cluster
