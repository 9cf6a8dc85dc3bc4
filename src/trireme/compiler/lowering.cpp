#include "trireme/compiler/lowering.h"

#include <algorithm>

#include "trireme/comm/scratch.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/program/pass.h"

namespace trireme::compiler {
namespace {

std::size_t scratch_bytes(const program::Instruction& i, const ir::Mesh& mesh, const Plan& plan) {
  if (ops::is_halo(*i.op)) {
    const ops::Halo halo(i.attributes);
    const std::size_t row = ops::halo_row_bytes(i.inputs.front().type, halo.dim);
    return ops::halo_scratch(ops::halo_messages(halo, i.op->name == ops::kHaloReduce, row), row);
  }
  if (plan.device != device::Kind::cpu) return 0;  // what the others need lies in the host's memory
  const int ranks = mesh.size_of(i.attributes.text("axis"));
  const DType dtype = i.inputs.front().type.dtype;
  std::vector<comm::Segment> segments;
  std::vector<comm::Cut> cuts;
  for (std::size_t o = 0; o < i.outputs.size(); ++o) {
    const std::int64_t in = i.inputs[o].type.elements();
    const std::int64_t out = i.outputs[o].type.elements();
    segments.push_back({nullptr, out});
    cuts.push_back({nullptr, nullptr, std::max(in, out), std::min(in, out)});
  }
  if (i.op->name == ops::kAllToAll) {
    std::size_t bytes = 0;
    for (const program::Operand& o : i.inputs) bytes += o.type.bytes();
    return i.inputs.size() > 1 ? 2 * bytes : 0;
  }
  if (i.op->name == ops::kAllReduce) return comm::scratch_bytes(plan.transport, plan.allreduce, segments, dtype, ranks);
  const auto kind = i.op->name == ops::kReduceScatter ? comm::Collective::reduce_scatter : comm::Collective::all_gather;
  return comm::scratch_bytes(plan.transport, kind, plan.allreduce, cuts, dtype, ranks);
}

void add_scratch(program::Program& p, const Plan& plan) {
  for (program::Instruction& i : p.instructions) {
    if (i.kind != program::Instruction::Kind::collective) continue;
    const std::size_t bytes = scratch_bytes(i, p.mesh, plan);
    if (bytes == 0) continue;
    i.workspace = {static_cast<program::BufferId>(p.buffers.size()), {DType::u8, {static_cast<std::int64_t>(bytes)}}};
    p.buffers.push_back({i.name, bytes, 0, program::Category::staging, program::kNone, program::kNone, program::kNone});
  }
}

program::CopyOptions copy_options(device::Kind device) {
  program::CopyOptions options;
  options.rates = cost::Rates::of(device);
  if (device != device::Kind::cpu) options.window = std::size_t{512} << 20;
  return options;
}

}  // namespace

program::LowerOptions lower_options(const Plan& plan) {
  return {.chunks = plan.parts() / plan.stages(),
          .threads = plan.threads,
          .device = plan.device,
          .copies = copy_options(plan.device),
          .collectives = {.overlap = plan.overlap,
                          .own_reductions = plan.device == device::Kind::cpu,
                          .ahead = plan.bucket},
          .weight_gradients = {.overlap = plan.overlap_wgrad},
          // Who offloads activations, or keeps them in fewer bytes, wants memory before time.
          .defer_gradients = !plan.offload && !plan.activations};
}

program::Program lower(const ir::Module& module, const program::StateLayout& layout,
                       const program::LowerOptions& options, const Plan& plan) {
  program::Program p = program::emit(module, layout, options);
  add_scratch(p, plan);
  program::run_passes(p, options);
  return p;
}

}  // namespace trireme::compiler
