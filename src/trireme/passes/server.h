#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// A parameter server: ranks outside the mesh keep the weights and everything that belongs to them, and run the update.
// Workers, which are the ranks of the mesh, push their terms of the gradients to them and pull the new weights:
//
//   graph update of a worker:                          graph update of a server that keeps @w, for 2 workers:
//   %sent = push(@w/grad) {peer=0, key=3}              %g = add_n(@w/grad/from.0, @w/grad/from.1)
//   %w = pull(%sent) {peer=0, key=9}                   %p, %m, %v = adamw(@w, %g, @w/m, @w/v, …)
//   write set @w = %w                                  write set @w = %p …
//
// What of the update is not about parameters (running statistics) stays with the workers, and so does what each replica
// has for itself. Where gradients are compressed, that is what is pushed: workers do what comes before the sum over
// replicas (pack), servers what makes its terms (unpack) and everything behind it, and what a worker needs of that for
// states of its own (whether all is finite) comes back. Graphs that set states from states (state_graphs.h) are the
// servers'. What a worker pushes lies in a state of its own, its slot, on the server. `loss`, `grad_norm` and `finite`
// come back with the weights; the squares of the gradients are summed over the servers' axis.
//
// Servers take the place of dp: on a mesh of pp=2,dp=3,tp=2 each of the four groups of three replicas has servers of
// its own, which keep what the group's ranks store. So the servers' mesh is the workers' with `server` where dp was,
// and collectives of the update over other axes are the servers'. Comes after partition and, in a pipeline, after
// split: both sides are made from one stage's module; after the compression of gradients, which they divide.

// A parameter, or some of its rows, and the server that keeps it.
struct ServerKey {
  std::string parameter;
  int server = 0;
  std::int64_t first = 0;  // of its rows
  std::int64_t rows = 0;   // 0: all of it
};
// Cuts the parameters over servers so that each has about as many bytes: the largest first, always to the server that
// has the least. One that alone is more than a server's share is cut itself, unless it is a shard or, by state, to be
// kept whole. Where there are fewer keys than servers, the last of them keep nothing: a stage of a pipeline may have
// no parameters at all.
std::vector<ServerKey> share_out(const ir::Module& module, const std::vector<bool>& kept_whole, int servers);

struct ServerOptions {
  int servers = 1;                                 // of a group of replicas
  int workers = 1;                                 // the replicas
  int proposed = std::numeric_limits<int>::max();  // servers, at most, where all of these would have too many
  // Every push is an update of its own: the server's update takes the gradients of one worker as inputs, as if its rows
  // were all there are. Otherwise it sums the slots of all of them, in their order.
  bool each = false;
  std::optional<std::int64_t> bound = {};  // each: steps that a worker may be ahead of the slowest; nothing: any number
};

// How many servers of these workers, at most as many as there are, all have something to keep; 0: there are no
// parameters. Of fewer than there are it gives no more than are to be proposed.
int servers_with_keys(const ir::Module& module, const ServerOptions& options);

class WorkerSide : public Pass {
 public:
  explicit WorkerSide(ServerOptions options) : options_(std::move(options)) {}
  std::string name() const override { return "worker"; }
  void run(ir::Module& module) const override;

 private:
  ServerOptions options_;
};

class ServerSide : public Pass {
 public:
  static constexpr const char* kName = "server";

  ServerSide(ServerOptions options, int place) : options_(std::move(options)), place_(place) {}
  std::string name() const override { return kName; }
  void run(ir::Module& module) const override;

 private:
  ServerOptions options_;
  int place_;
};

// Where on the server a worker's push of `of` lands, and the axis that the servers are along.
std::string slot_name(const std::string& of, int worker);
inline constexpr const char* kServerAxis = "server";
// Of the servers of these workers.
ir::Mesh server_mesh(const ir::Mesh& workers, int servers);

}  // namespace trireme::passes
