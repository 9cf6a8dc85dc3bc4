// What follows from a configuration before anything is compiled: declared in compile.h.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/train/compile.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {

void resolve_model(Config& config, std::int64_t data_vocab, const models::Families& families) {
  const models::Model& model = families.at(config.model.family);
  if (!model.images && model.inputs.empty()) {
    if (config.model.vocab == 0) config.model.vocab = data_vocab;
    if (config.model.vocab < data_vocab)
      refuse("{} = {} is smaller than the tokenizer's {}", config.names.vocab, config.model.vocab, data_vocab);
    if (config.model.vocab <= 0) refuse("{} is not known: the data has no tokenizer, so give it", config.names.vocab);
  }
  model.resolve(config.model, config.names);
}

comm::Algorithm algorithm_of(const Config& config) {
  // The enumerations have one order; a test compares their names.
  return static_cast<comm::Algorithm>(config.parallel.allreduce.kind());
}

comm::TransportKind transport_of(const Config& config, const std::optional<Decisions>& followed) {
  if (config.runtime.transport == Transport::mpi) return comm::TransportKind::mpi;
  if (!config.runtime.link.empty()) return comm::TransportKind::emulated;
  return followed ? followed->transport.value_or(comm::TransportKind::threads) : comm::TransportKind::threads;
}

int compute_threads(const Config& config, int sharing) {
  if (config.runtime.threads > 0) return static_cast<int>(config.runtime.threads);
  auto cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (sharing > 0 && cores < static_cast<int>(std::thread::hardware_concurrency())) sharing = 1;
  return std::max(1, cores / (sharing > 0 ? sharing : mesh_of(config).ranks()));
}

std::int64_t micro_batch_rows(const Config& config) {
  const std::int64_t replicas = mesh_of(config).size_of(ir::kDataAxis);
  const std::int64_t share = config.train.batch / replicas;
  std::int64_t rows = config.train.micro_batch == 0 ? share : config.train.micro_batch;
  // A pipeline wants enough micro-batches to be full most of the time.
  constexpr std::int64_t kPerStage = 4;
  if (const std::int64_t stages = mesh_of(config).size_of(ir::kPipelineAxis);
      config.train.micro_batch == 0 && stages > 1)
    while (rows > 1 && (share % rows != 0 || share / rows < kPerStage * stages)) --rows;
  if (share % rows != 0) {
    std::int64_t near = rows;
    while (share % near != 0) --near;
    refuse("train.micro_batch = {} does not divide {} = {}; the nearest that does is {}", rows,
           replicas == 1 ? "train.batch" : "a replica's share of train.batch", share, near);
  }
  return rows * replicas;
}

ir::Mesh mesh_of(const Config& config, int launched) {
  ir::Mesh mesh;
  if (config.parallel.any_mesh()) {
    if (launched > 1) mesh.axes = {{ir::kDataAxis, launched}};
    return mesh;
  }
  int known = 1;
  const auto axes = parse_mesh_axes(config.parallel.mesh);
  TRI_CHECK(axes.has_value(), "parallel.mesh = {} was not checked", config.parallel.mesh);
  for (const auto& [name, size] : *axes) {
    mesh.axes.push_back({name, static_cast<int>(size)});
    if (size > 0) known *= static_cast<int>(size);
  }
  for (ir::Mesh::Axis& axis : mesh.axes)
    if (axis.size == 0) axis.size = std::max(1, launched / known);
  std::erase_if(mesh.axes, [](const ir::Mesh::Axis& axis) { return axis.size == 1; });
  return mesh;
}

}  // namespace trireme::train
