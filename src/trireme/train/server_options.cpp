#include "trireme/core/error.h"
#include "trireme/train/compile.h"

namespace trireme::train {

std::optional<ServerMode> server_mode(const Config& config) {
  const Choice choice = parse_choice(config.parallel.server);
  if (choice.name == "none") return std::nullopt;
  ServerMode mode{.each = choice.name != "sync", .bound = {}};
  if (choice.name == "ssp") mode.bound = static_cast<std::int64_t>(choice.argument);
  return mode;
}

int server_ranks(const Config& config) { return server_mode(config) ? static_cast<int>(config.parallel.servers) : 0; }

void check_server_mode(const Compiled& c, const Config& config) {
  if (!c.mode || !c.mode->each) return;
  for (const ir::Node& node : c.module.graph("micro").nodes)
    if (node.op->traits.collective)
      refuse(
          "parallel.server = \"{}\" lets workers run apart, and batch statistics of model.family = \"{}\" are taken "
          "over "
          "all of them; the nearest is \"sync\"",
          config.parallel.server, config.model.family);
}

}  // namespace trireme::train
