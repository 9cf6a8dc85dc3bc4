#include "trireme/core/version.h"

namespace trireme {

std::string_view version() { return TRIREME_VERSION; }

std::string_view short_version() { return version().substr(0, version().rfind('.')); }

}  // namespace trireme
