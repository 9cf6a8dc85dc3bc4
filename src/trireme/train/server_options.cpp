#include "trireme/train/server_options.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/message.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {

// Each group of replicas has servers of its own.
int extra_ranks(const Config& config) {
  if (config.parallel.server == Server::none) return 0;
  std::int64_t groups = 1;
  const auto axes = parse_mesh_axes(config.parallel.mesh);
  TRI_CHECK(axes.has_value(), "parallel.mesh = {} was not checked", config.parallel.mesh);
  for (const auto& [axis, size] : *axes)
    if (axis != ir::kDataAxis) groups *= std::max<std::int64_t>(1, size);
  return static_cast<int>(groups * config.parallel.servers);
}

std::string launched_mesh(const Config& config, int launched, std::string* shortfall) {
  // What a built-in configuration shows is for as many ranks as it says.
  const auto& keys = config.over_builtin;
  const bool shown = config.builtin && std::find(keys.begin(), keys.end(), "parallel.mesh") == keys.end();
  if (shown && launched > 1 && mesh_of(config).ranks() + extra_ranks(config) != launched) {
    Config other = config;
    other.parallel.mesh = "auto";
    other.builtin = false;
    return launched_mesh(other, launched, shortfall);
  }
  const auto lacks = [&](std::string why) {
    if (shortfall == nullptr) refuse("{}", why);
    *shortfall = std::move(why);
  };
  const int servers = extra_ranks(config);
  const bool none_left = launched > 1 && launched <= servers;
  const ir::Mesh mesh = mesh_of(config, launched > 1 && !none_left ? launched - servers : 1);
  if (none_left)
    lacks(fmt::format("parallel.servers = {} leaves no worker of the {} ranks that were launched", servers, launched));
  else if (launched > 1 && mesh.ranks() + servers != launched)
    lacks(fmt::format("parallel.mesh = \"{}\" has {} rank{}{}, and {} were launched", config.parallel.mesh,
                      mesh.ranks(), mesh.ranks() == 1 ? "" : "s",
                      servers == 0 ? "" : fmt::format(", with {} servers", servers), launched));
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
  if (parallel.compress == Compress::powersgd)
    refuse(
        "parallel.compress = \"{}\" sums twice in a step, the second time what follows from the first sum, and {} "
        "answers once a step; the nearest is parallel.compress = \"int8\"",
        parallel.compress, given);
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

std::optional<passes::ServerOptions> server_options(const Config& config, const ir::Mesh& workers) {
  const Choice<Server>& server = config.parallel.server;
  if (server == Server::none) return std::nullopt;
  const program::PipelineName pipeline = program::parse_pipeline(config.parallel.pipeline.text());
  using Kind = program::PipelineName::Kind;
  if (workers.size_of(ir::kPipelineAxis) > 1 &&
      (pipeline.kind == Kind::pipedream || pipeline.kind == Kind::pipedream_2bw ||
       (pipeline.kind == Kind::file && program::read_schedule(pipeline.path).asynchronous())))
    refuse(
        "parallel.server = \"{}\" updates weights on servers when a step is over, and parallel.pipeline = \"{}\" "
        "updates "
        "them on each stage in the midst of it; the nearest is parallel.pipeline = \"1f1b\", or parallel.server = "
        "\"none\"",
        server, config.parallel.pipeline);
  passes::ServerOptions options{.servers = static_cast<int>(config.parallel.servers),
                                .workers = workers.size_of(ir::kDataAxis),
                                .each = server != Server::sync};
  if (server == Server::ssp) options.bound = static_cast<std::int64_t>(server.argument());
  return options;
}

void check_server_options(const Compiled& compiled, const Config& config) {
  if (!compiled.plan.server || !compiled.plan.server->each) return;
  const auto among_replicas = [](const ir::Node& node) {
    if (!node.op->traits.collective || ops::is_message(*node.op)) return false;
    const std::vector<std::string> axes = split(node.attributes.text("axis"), '+');
    return std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end();
  };
  for (const Role& role : compiled.roles)
    if (!role.exchange && role.module.has_graph("micro") &&
        std::any_of(role.module.graph("micro").nodes.begin(), role.module.graph("micro").nodes.end(), among_replicas))
      refuse(
          "parallel.server = \"{}\" runs workers asynchronously, and batch statistics of model.family = \"{}\" are "
          "taken "
          "over "
          "all of them; the nearest is \"sync\"",
          config.parallel.server, config.model.family);
}

}  // namespace trireme::train
