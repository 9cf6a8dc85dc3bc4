#pragma once

#include <string>

namespace trireme {

// The root of this checkout, for tests that read files of it. One source alone is compiled with the path, so that a
// compiler cache serves the tests of every checkout.
std::string source_dir();

}  // namespace trireme
