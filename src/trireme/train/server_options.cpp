#include "trireme/train/server_options.h"

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"

namespace trireme::train {

int extra_ranks(const Config& config) {
  return config.parallel.server == Server::none ? 0 : static_cast<int>(config.parallel.servers);
}

std::string launched_mesh(const Config& config, int launched) {
  const int servers = extra_ranks(config);
  if (launched > 1 && launched <= servers)
    refuse("parallel.servers = {} leaves no worker of the {} ranks that were launched", servers, launched);
  const ir::Mesh mesh = mesh_of(config, launched > 1 ? launched - servers : 1);
  if (launched > 1 && mesh.ranks() + servers != launched)
    refuse("parallel.mesh = \"{}\" has {} rank{}{}, and {} were launched", config.parallel.mesh, mesh.ranks(),
           mesh.ranks() == 1 ? "" : "s", servers == 0 ? "" : fmt::format(", with {} servers", servers), launched);
  return mesh.axes.empty() ? "auto" : mesh.str();
}

void check_server(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::string given = fmt::format("parallel.server = \"{}\"", parallel.server);
  if (parallel.server == Server::none) {
    if (config.is_given("parallel.servers") && parallel.servers != 1)
      refuse("parallel.servers = {} belongs to a parameter server; set parallel.server = \"sync\"", parallel.servers);
    return;
  }
  if (parallel.zero > 0)
    refuse("{} keeps optimizer states on its servers: nothing is left for parallel.zero = {}; the nearest is 0", given,
           parallel.zero);
  if (const OffloadSet& offload = config.memory.offload; offload.state())
    refuse(
        "{} does not go with memory.offload = \"{}\": servers keep weights and optimizer states in memory; the nearest "
        "is "
        "\"activations\"",
        given, offload);
}

std::string needs_host(const Config& config) {
  if (config.memory.weights != StoredWeights::full)
    return fmt::format("memory.weights = \"{}\"", config.memory.weights);
  if (config.train.quantize != TrainedCodes::none) return fmt::format("train.quantize = \"{}\"", config.train.quantize);
  return config.parallel.server == Server::none ? "" : fmt::format("parallel.server = \"{}\"", config.parallel.server);
}

std::string smaller_share(const Config& config) {
  return fmt::format("; try parallel.servers = {}", config.parallel.servers + 1);
}

std::optional<passes::ServerOptions> server_options(const Config& config, const ir::Module& module,
                                                    const ir::Mesh& workers) {
  const Choice<Server>& server = config.parallel.server;
  if (server == Server::none) return std::nullopt;
  if (workers.ranks() != workers.size_of(ir::kDataAxis))
    refuse(
        "parallel.server = \"{}\" shares out whole parameters, and parallel.mesh = \"{}\" shards them; the nearest is "
        "parallel.mesh = \"{}={}\", or parallel.server = \"none\"",
        server, workers.str(), ir::kDataAxis, workers.ranks());
  const int servers = extra_ranks(config);
  passes::ServerOptions options{.keys = passes::share_out(module, servers),
                                .servers = servers,
                                .workers = workers.ranks(),
                                .each = server != Server::sync};
  if (server == Server::ssp) options.bound = static_cast<std::int64_t>(server.argument());
  return options;
}

void check_server_options(const Compiled& compiled, const Config& config) {
  if (!compiled.plan.server || !compiled.plan.server->each) return;
  for (const ir::Node& node : compiled.roles.front().module.graph("micro").nodes)
    if (node.op->traits.collective)
      refuse(
          "parallel.server = \"{}\" runs workers asynchronously, and batch statistics of model.family = \"{}\" are "
          "taken "
          "over "
          "all of them; the nearest is \"sync\"",
          config.parallel.server, config.model.family);
}

}  // namespace trireme::train
