#pragma once
#include <string>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// Trains a student of the shape that the command line gives, taught by the model in `from`, into the run folder `out`;
// what stopped it, as an exit code, or 0. A student that was interrupted goes on.
int train_student(const Context& context, const std::string& from, const std::string& out, bool overwrite);

}  // namespace trireme::cli
