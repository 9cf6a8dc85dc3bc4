#pragma once
#include <string>

#include "trireme/cli/command_line.h"

namespace trireme::cli {

// Scripts by which a shell completes commands, options and configuration keys; all of it from the command table.
std::string bash_completion(const CLI::CommandInfo& program);
std::string zsh_completion(const CLI::CommandInfo& program);
std::string fish_completion(const CLI::CommandInfo& program);

// A word as a shell reads it: in quotes where a space, a star or the like would make something else of it.
std::string shell_word(const std::string& word);

// The configuration keys for a command's help: a line for each section, "  init       from".
std::string keys_by_section();

// The manual page trireme(1).
std::string manual_page(const CLI::CommandInfo& program);

}  // namespace trireme::cli
