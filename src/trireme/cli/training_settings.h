#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/commands.h"
#include "trireme/train/config.h"

namespace trireme::cli {

// The settings of the command line that matter to a command that uses a trained model. The others are warned of by name
// and left out: what has no effect is not refused together with something else either.
std::vector<std::string> settings_of_use(const Context& context, std::string_view command);

// The configuration of the model in `from` under these settings, for the ranks that they name: by default one. Refuses
// weights that are stored in another way than the model has them, and ranks that cannot have as many heads each.
train::Config load_for_use(const Context& context, const std::string& from, const std::vector<std::string>& settings);

}  // namespace trireme::cli
