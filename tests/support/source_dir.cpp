#include "support/source_dir.h"

namespace trireme {

std::string source_dir() { return TRIREME_SOURCE_DIR; }

}  // namespace trireme
