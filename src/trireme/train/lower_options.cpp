#include "trireme/train/lower_options.h"

#include <algorithm>

#include "trireme/comm/scratch.h"
#include "trireme/ops/collective/collective.h"

namespace trireme::train {
namespace {

program::CollectiveOptions collective_options(const Config& config, const ir::Mesh& mesh, comm::TransportKind transport,
                                              device::Kind device) {
  program::CollectiveOptions options;
  options.overlap = config.parallel.overlap;
  options.ahead = config.parallel.bucket.count;
  if (device != device::Kind::cpu) return options;  // what they need lies in the host's memory
  const comm::Algorithm algorithm = comm::parse_algorithm(config.parallel.allreduce);
  options.scratch = [algorithm, mesh, transport](const program::Instruction& i) {
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
    if (i.op->name == ops::kAllReduce) return comm::scratch_bytes(transport, algorithm, segments, dtype, ranks);
    const auto kind =
        i.op->name == ops::kReduceScatter ? comm::Collective::reduce_scatter : comm::Collective::all_gather;
    return comm::scratch_bytes(transport, kind, algorithm, cuts, dtype, ranks);
  };
  return options;
}

// A CPU's cores are busy with one launch; a GPU has room for a second. Models of images gain no time from it there.
program::WeightGradientOptions weight_gradient_options(const Config& config, device::Kind device,
                                                       const ir::Module& module) {
  const std::string& where = config.runtime.weight_gradients;
  if (where != "auto") return {.overlap = where == "beside"};
  if (device == device::Kind::cpu || !module.has_graph("micro")) return {};
  const ir::Graph& micro = module.graph("micro");
  return {.overlap = std::none_of(micro.inputs.begin(), micro.inputs.end(),
                                  [&](ir::ValueId id) { return micro.value(id).name == "images"; })};
}

program::CopyOptions copy_options(device::Kind device) {
  program::CopyOptions options;
  options.rates = passes::CostRates::of(device);
  if (device != device::Kind::cpu) options.window = std::size_t{512} << 20;
  return options;
}

}  // namespace

program::LowerOptions lower_options(const Config& config, const ir::Module& module, const ir::Mesh& mesh,
                                    const CompileOptions& options, device::Kind device) {
  return {.threads = options.threads,
          .device = device,
          .copies = copy_options(device),
          .collectives = collective_options(config, mesh, options.transport, device),
          .weight_gradients = weight_gradient_options(config, device, module)};
}

}  // namespace trireme::train
