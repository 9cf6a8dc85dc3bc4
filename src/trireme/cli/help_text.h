#pragma once
#include <string>

namespace trireme::cli {

// Help of a command for so many columns: what an option does goes on below its first line, and examples in lines that
// a shell reads as one. 0: as it is.
std::string wrapped_help(const std::string& text, int columns);

}  // namespace trireme::cli
