#pragma once
#include <string_view>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// Warns, by name, of settings of the command line that matter to a training alone, for a command that uses a model.
void warn_of_training_settings(const Context& context, std::string_view command);

}  // namespace trireme::cli
