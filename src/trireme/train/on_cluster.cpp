#include "trireme/train/on_cluster.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "trireme/comm/threads/link.h"
#include "trireme/comm/tuning.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/open_data.h"

namespace trireme::train {
namespace {

// Whether something of the model's shape is only to be read off the data.
bool needs_data(const Config& config, const models::Families& families) {
  if (families.at(config.model.family).images) return config.data.images != "synthetic";
  return config.model.vocab == 0;
}

// A rank's cores, as compute_threads shares out this machine's.
int threads_on(const Config& config, const cluster::Cluster& cluster, int ranks) {
  if (config.runtime.threads > 0) return static_cast<int>(config.runtime.threads);
  if (cluster.device.kind != "cpu") return 1;
  return static_cast<int>(std::max<std::int64_t>(1, cluster.node.cores / cluster.ranks_of_node(ranks)));
}

}  // namespace

// An emulated link holds messages back and occupies no core meanwhile.
void emulate_link(cluster::Cluster& cluster, const std::string& text) {
  const auto link = comm::threads::parse_link(text);
  if (!link) return;
  if (cluster.device.kind != "cpu")
    refuse("runtime.link = \"{}\" emulates a link between ranks on a CPU; cluster {} describes its own", text,
           cluster.name);
  cluster.transport = "emulated";
  for (cluster::Link* level : {&cluster.inside, &cluster.network}) {
    level->measured.clear();
    level->collective_bandwidth = 0;
    level->latency += std::chrono::duration<double>(link->latency).count();
    // A message passes the emulated link, and memory.
    if (link->bytes_per_second > 0)
      level->bandwidth = 1 / (1 / link->bytes_per_second + (level->bandwidth > 0 ? 1 / level->bandwidth : 0));
  }
}

OnCluster compile_on(Config config, const Registry& registry, cluster::Cluster cluster,
                     const OnClusterOptions& options) {
  OnCluster out;
  if (config.parallel.any_mesh() || config.parallel.mesh.find('*') != std::string::npos) {
    const ir::Mesh mesh = mesh_of(config, options.ranks);
    config.parallel.mesh = mesh.axes.empty() ? "dp=1" : mesh.str();
  }
  check(config, registry.models);
  const int ranks = ranks_of(config);
  const bool gpu = cluster.device.kind != "cpu";
  const bool kernels = device::cuda::built();
  config.runtime.device = gpu && kernels ? Device::cuda : Device::cpu;
  out.foreign = gpu && !kernels;
  out.images = registry.models.at(config.model.family).images;
  // As a GPU's run would, whatever this build lowers for: what is simulated is what a plan file then says.
  if (gpu && !config.runtime.overlap_wgrad) config.runtime.overlap_wgrad = !out.images;
  emulate_link(cluster, config.runtime.link);
  if (!cluster.current().overlap_groups) config.parallel.overlap = false;
  config.runtime.link.clear();
  if (!options.resolved) resolve_shape(config, registry, options);
  if (options.on_phase) options.on_phase("compiling");
  CompileOptions compile_options{.threads = threads_on(config, cluster, ranks),
                                 .staging = std::numeric_limits<std::size_t>::max(),
                                 .staging_gives_way = config.output.staging.automatic(),
                                 .step_alone = options.step_alone,
                                 .transport = transport_of(config, options.decided),
                                 .decided = options.decided};
  // A plan for GPUs, where this build lowers for a CPU: its decisions are of the model and stand.
  if (compile_options.decided && out.foreign) compile_options.decided->device = device::Kind::cpu;
  if (!config.output.staging.automatic()) compile_options.staging = config.output.staging.size->count;
  // A GPU's checkpoints are staged in the host's memory.
  if (out.foreign || (config.output.staging.automatic() && offloads_state(config)))
    compile_options.staging = io::kStagingAlignment;
  out.planned = make_plan(config, registry, compile_options);
  // What leaves a GPU goes to its host, whatever this build lowers for.
  if (out.foreign && out.planned.plan.offload && config.memory.offload_tier != OffloadTier::disk)
    out.planned.plan.offload->tier = program::kHostTier;
  out.compiled = compile(out.planned, config, compile_options);
  out.tokens = static_cast<double>(config.train.batch) * (out.images ? 1.0 : static_cast<double>(config.model.context));
  out.config = std::move(config);
  out.cluster = std::move(cluster);
  return out;
}

void resolve_shape(Config& config, const Registry& registry, const OnClusterOptions& options) {
  std::int64_t vocab = 0;
  if (needs_data(config, registry.models)) {
    if (options.on_phase) options.on_phase("reading data");
    vocab = open_data(config, registry.models, {.log = options.log, .threads = 1}).vocab;
  }
  resolve_model(config, vocab, registry.models);
}

std::string own_cluster_file() {
  return (std::filesystem::path(comm::tuning_file()).parent_path() / "cluster.toml").string();
}

}  // namespace trireme::train
