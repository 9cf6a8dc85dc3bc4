#include "trireme/cli/floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace trireme::cli {

std::string floors(const program::Program& program, double flops, double bytes) {
  struct Row {
    double seconds = 0;
    int count = 0;
    int by_flops = 0;  // of these, those that operations hold up
  };
  std::map<std::pair<std::string, std::string>, Row> rows;
  double total = 0;
  for (const program::Instruction& i : program.instructions) {
    if (i.kind != program::Instruction::Kind::launch || i.on_host) continue;
    ir::Types inputs;
    ir::Types outputs;
    for (const program::Operand& o : i.inputs) inputs.push_back(o.type);
    for (const program::Operand& o : i.outputs) outputs.push_back(o.type);
    const ir::Cost cost = i.op->cost(inputs, outputs, i.attributes);
    const double computing = cost.flops / flops;
    const double moving = (cost.bytes_read + cost.bytes_written) / bytes;
    Row& row = rows[{ir::name_of(i.phase), i.op->name}];
    row.seconds += std::max(computing, moving);
    row.by_flops += computing > moving ? 1 : 0;
    ++row.count;
    total += std::max(computing, moving);
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string text = fmt::format("floors at {:.0f} TFLOP/s and {:.2f} TB/s: {:.2f} ms in all\n", flops / 1e12,
                                 bytes / 1e12, total * 1e3);
  for (const auto& [name, row] : sorted)
    if (row.seconds > 1e-6)
      text += fmt::format("{:10.3f}  {:5}  {:15} {:22} {}\n", row.seconds * 1e3, row.count, name.first, name.second,
                          2 * row.by_flops > row.count ? "operations" : "bytes");
  return text;
}

}  // namespace trireme::cli
