#pragma once
#include <optional>
#include <string>

#include "trireme/train/compile.h"

namespace trireme::train {

// Refuses settings that do not go with parallel.server.
void check_server(const Config& config);
// What parallel.server asks for; nothing: no servers.
std::optional<passes::ServerOptions> server_options(const Config& config, const ir::Mesh& workers);
// Refuses workers that are to run at their own pace and wait for each other in every step all the same.
void check_server_options(const Compiled& compiled, const Config& config);

}  // namespace trireme::train
