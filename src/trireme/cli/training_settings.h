#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/commands.h"
#include "trireme/train/compile.h"
#include "trireme/train/same_run.h"

namespace trireme::cli {

// The settings of the command line that matter to a command that uses a trained model. The others are warned of by name
// and left out: what has no effect is not refused together with something else either.
std::vector<std::string> settings_of_use(const Context& context, std::string_view command);

// The configuration of the model in `from` under these settings, for the ranks that they name: by default one, or those
// that so many `processes` are (train::set_mesh_of_use). Refuses weights that are stored in another way than the model
// has them, and ranks that cannot have as many heads each.
train::Config load_for_use(const Context& context, const std::string& from, const std::vector<std::string>& settings,
                           train::Purpose purpose, int processes = 1);

// What processes that use a model together compute on, which must be the same.
train::Fact device_fact(const train::Config& config);

}  // namespace trireme::cli
