#pragma once
#include <string>
#include <string_view>

namespace trireme {

// Names of what is made next to its place and renamed when it is whole. Nobody else gives such a name: what carries it,
// is of this machine and of a process that is no more, may be removed.
//
//   aside_name("runs/one", "new", 0)    // "runs/.one.trireme-new-HOST-PID-0"
std::string aside_name(const std::string& path, std::string_view kind, int attempt);

// Makes an empty folder under such a name, and the folder that holds it; gives its path.
std::string make_aside_folder(const std::string& path, std::string_view kind);

// Removes the folders that make_aside_folder(path, kind) has made, for this path or others next to it, in processes of
// this machine that have ended.
void remove_abandoned_folders(const std::string& path, std::string_view kind);

// Whether `name`, without its folder, was made by `aside_name` on this machine, by a process that has ended.
bool is_abandoned(std::string_view name, std::string_view kind);

}  // namespace trireme
