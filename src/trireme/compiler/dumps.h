#pragma once
#include <filesystem>

namespace trireme::compiler {

// Removes what an earlier compilation has dumped into a folder (CompileOptions::dump_passes), so that the files there
// are those of one: numbered text files, and the folders of roles that hold nothing else. Leaves all other files alone,
// and refuses a folder where one of them has such a name.
void remove_dumps(const std::filesystem::path& folder);

}  // namespace trireme::compiler
