#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/message.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/graphs.h"
#include "trireme/train/outside.h"
#include "trireme/train/statistics_warning.h"

namespace trireme::train {
namespace {

// What parallel.server does not go with.
struct Conflict {
  bool when = false;
  std::string_view key;
  std::string_view why;
  std::string_view nearest;  // "key = value"
};

// A file that is not there, or is no schedule, is refused where it is read.
bool is_asynchronous(const std::string& schedule) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(schedule, unknown) && read_given_schedule(schedule).asynchronous();
}

// Whether an annotation shards something else than rows over dp. Rows are dimension 0 of what a model reads.
bool shards_over_replicas(const Config& config) {
  static const std::array<std::string_view, 4> inputs = {"tokens", "targets", "images", "labels"};
  for (const auto& [pattern, sharding] : config.parallel.sharding)
    for (const std::string& part : split(sharding, ',')) {
      const std::vector<std::string> pair = split(trim(part), ':');
      const bool reads = std::find(inputs.begin(), inputs.end(), pattern) != inputs.end();
      const bool rows = pair.size() == 2 && (trim(pair[0]) == "batch" || (reads && trim(pair[0]) == "0"));
      if (pair.size() == 2 && trim(pair[1]) == ir::kDataAxis && !rows) return true;
    }
  return false;
}

std::vector<Conflict> conflicts(const Config& config) {
  const auto axes = parse_mesh_axes(config.parallel.mesh);
  const bool stages = axes && std::any_of(axes->begin(), axes->end(), [](const auto& axis) {
                        return axis.first == ir::kPipelineAxis && axis.second > 1;
                      });
  const program::PipelineName pipeline = program::parse_pipeline(config.parallel.pipeline.text());
  using Kind = program::PipelineName::Kind;
  const bool asynchronous = pipeline.kind == Kind::pipedream || pipeline.kind == Kind::pipedream_2bw ||
                            (pipeline.kind == Kind::file && stages && is_asynchronous(pipeline.path));
  return {
      {config.parallel.zero > 0, "parallel.zero", "servers keep the optimizer states: nothing is left to shard",
       "parallel.zero = 0"},
      {config.parallel.compress == Compress::powersgd, "parallel.compress",
       "it sums twice in a step, the second time what follows from the first sum, and servers answer once a step",
       "parallel.compress = \"int8\""},
      {shards_over_replicas(config), "parallel.sharding",
       "workers are replicas that differ in their rows alone, whose gradients are pushed to be summed, and it shards "
       "something else over dp",
       "parallel.server = \"none\""},
      {stages && asynchronous, "parallel.pipeline",
       "servers update weights when a step is over, and stages in the midst of it",
       "parallel.pipeline = \"1f1b\", or parallel.server = \"none\""},
  };
}

passes::ServerOptions server_options(const Config& config, const ir::Mesh& workers) {
  const Choice<Server>& server = config.parallel.server;
  const int groups = workers.ranks() / workers.size_of(ir::kDataAxis);
  passes::ServerOptions options{.servers = static_cast<int>(config.parallel.servers),
                                .workers = workers.size_of(ir::kDataAxis),
                                .proposed = (kMaxThreadRanks - workers.ranks()) / groups,
                                .each = server != Server::sync};
  if (server == Server::ssp) options.bound = static_cast<std::int64_t>(server.argument());
  return options;
}

// Each group of replicas has servers of its own.
int servers_of(const Config& config) {
  if (config.parallel.server == Server::none) return 0;
  std::int64_t groups = 1;
  const auto axes = parse_mesh_axes(config.parallel.mesh);
  TRI_CHECK(axes.has_value(), "parallel.mesh = {} was not checked", config.parallel.mesh);
  for (const auto& [axis, size] : *axes)
    if (axis != ir::kDataAxis) groups *= std::max<std::int64_t>(1, size);
  return static_cast<int>(groups * config.parallel.servers);
}

}  // namespace

int ranks_of(const Config& config) { return mesh_of(config).ranks() + servers_of(config); }

std::string launched_mesh(const Config& config, int launched, std::string* shortfall) {
  // What a built-in configuration shows is for as many ranks as it says.
  const auto& keys = config.over_builtin;
  const bool shown = config.builtin && std::find(keys.begin(), keys.end(), "parallel.mesh") == keys.end();
  if (shown && launched > 1 && ranks_of(config) != launched) {
    Config other = config;
    other.parallel.mesh = "auto";
    other.builtin = false;
    return launched_mesh(other, launched, shortfall);
  }
  const auto lacks = [&](std::string why) {
    if (shortfall == nullptr) refuse("{}", why);
    *shortfall = std::move(why);
  };
  const int servers = servers_of(config);
  const bool none_left = launched > 1 && launched <= servers;
  const ir::Mesh mesh = mesh_of(config, launched > 1 && !none_left ? launched - servers : 1);
  if (none_left && mesh.axes.empty())
    lacks(fmt::format("parallel.servers = {} leaves no worker of the {} ranks that were launched", servers, launched));
  else if (launched > 1 && mesh.ranks() + servers != launched)
    lacks(fmt::format(
        "parallel.mesh = \"{}\" has {} rank{}{}, and {} were launched; launch {}, or set parallel.mesh = \"auto\"",
        config.parallel.mesh, mesh.ranks(), mesh.ranks() == 1 ? "" : "s",
        servers == 0 ? "" : fmt::format(", with {} server{}", servers, servers == 1 ? "" : "s"), launched,
        mesh.ranks() + servers));
  if (!mesh.axes.empty()) return mesh.str();
  return config.parallel.any_mesh() ? "auto" : fmt::format("{}=1", ir::kDataAxis);  // asked for, and kept
}

std::string extra_ranks_setting(const Config& config) {
  return config.parallel.server == Server::none ? "" : fmt::format("parallel.server = \"{}\"", config.parallel.server);
}

std::vector<std::string> extra_ranks_keys() { return {"parallel.server", "parallel.servers"}; }

std::string smaller_share(const Config& config, double times) {
  const auto servers = static_cast<std::int64_t>(std::ceil(static_cast<double>(config.parallel.servers) * times));
  return fmt::format("; try parallel.servers = {}", std::max(servers, config.parallel.servers + 1));
}

void check_extra_ranks(const Config& config) {
  const bool none = config.parallel.server == Server::none;
  if (none && (!config.is_given("parallel.servers") || config.parallel.servers == 1)) return;
  const std::vector<Conflict> all = conflicts(config);
  const auto conflict = std::find_if(all.begin(), all.end(), [](const Conflict& c) { return c.when; });
  // What a server does not go with is what a person may want more than servers.
  if (none)
    refuse("parallel.servers = {} belongs to a parameter server, and parallel.server = \"none\"; the nearest is {}",
           config.parallel.servers,
           conflict != all.end() ? "parallel.servers = 1" : "parallel.server = \"sync\", or parallel.servers = 1");
  if (conflict != all.end())
    refuse("{} does not go with {} = {}: {}; the nearest is {}", extra_ranks_setting(config), conflict->key,
           in_one_line(value_text(config, conflict->key)), conflict->why, conflict->nearest);
}

std::vector<WithoutEffect> without_effect_by_extra_ranks(const Config& config) {
  const ir::Mesh mesh = mesh_of(config);
  return {{config.parallel.server != Server::none && mesh.ranks() == mesh.size_of(ir::kDataAxis),
           "is for sums over ranks, and servers make them",
           {"parallel.bucket"}}};
}

void plan_extra_ranks(const Config& config, compiler::Plan& plan) {
  check_extra_ranks(config);
  if (config.parallel.server == Server::none) return;
  plan.server = server_options(config, plan.mesh);
  if (plan.compress) plan.compress->one_way = true;  // weights come back
}

void check_pace(const Compiled& compiled, const Config& config) {
  if (!compiled.plan.server || !compiled.plan.server->each) return;
  const auto among_replicas = [](const ir::Node& node) {
    if (!node.op->traits.collective || ops::is_message(*node.op)) return false;
    const std::vector<std::string> axes = split(node.attributes.text("axis"), '+');
    return std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end();
  };
  const auto what = [&](const ir::Graph& micro, const ir::Node& node) {
    if (!has_batch_norms(compiled))
      return fmt::format("'{}' is combined over all of them in every step", micro.value(node.outputs.front()).name);
    return fmt::format("{} of model.family = \"{}\" are taken over all of them in every step{}",
                       compiled.plan.own_statistics ? "running statistics" : "batch statistics", config.model.family,
                       compiled.plan.own_statistics
                           ? ", also where each normalises by its own rows (train.batch_stats = \"local\")"
                           : "");
  };
  for (const Role& role : compiled.roles) {
    if (!role.takes_rows() || !role.module.has_graph("micro")) continue;
    const ir::Graph& micro = role.module.graph("micro");
    if (const auto node = std::find_if(micro.nodes.begin(), micro.nodes.end(), among_replicas);
        node != micro.nodes.end())
      refuse("parallel.server = \"{}\" runs workers asynchronously, and {}; the nearest is parallel.server = \"sync\"",
             config.parallel.server, what(micro, *node));
  }
}

}  // namespace trireme::train
