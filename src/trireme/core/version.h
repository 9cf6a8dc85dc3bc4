#pragma once
#include <string_view>

namespace trireme {

// This build's version, as the top CMakeLists.txt states it: "0.1.0".
std::string_view version();
// Without the patch: "0.1".
std::string_view short_version();

}  // namespace trireme
