#include "trireme/train/statistics_warning.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::train {
namespace {

constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kEnoughRows = 16;

bool is_batch_norm(const ir::Node& node) {
  return node.op->name.starts_with("batch_norm") || node.op->name == "channel_moments";
}

}  // namespace

bool has_batch_norms(const compiler::Compiled& c) {
  return std::any_of(c.roles.begin(), c.roles.end(), [](const compiler::Role& role) {
    if (!role.module.has_graph("micro")) return false;
    const auto& nodes = role.module.graph("micro").nodes;
    return std::any_of(nodes.begin(), nodes.end(), is_batch_norm);
  });
}

std::vector<std::string> statistics_warnings(const compiler::Compiled& c) {
  const std::int64_t rows = c.plan.own_statistics ? c.micro_rows / c.replicas : c.micro_rows;
  if (c.steps.empty() || rows >= kFewRows || !has_batch_norms(c)) return {};
  const std::int64_t share = c.micro_rows / c.replicas * c.micro_batches;
  std::int64_t better = std::min(kEnoughRows, share);
  while (share % better != 0) --better;
  const std::string what = fmt::format("batch norms normalise by the {} row{} of a micro-batch, too few to learn well",
                                       rows, rows == 1 ? "" : "s");
  if (better * c.replicas <= c.micro_rows) return {what + "; a larger train.batch would help"};
  return {fmt::format("{}; train.micro_batch = {} gives them more", what, better)};
}

}  // namespace trireme::train
