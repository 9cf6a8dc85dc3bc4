#include "trireme/core/error.h"

#include <cstring>

namespace trireme {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  const char* base = std::strrchr(file, '/');
  fail("internal error at {}:{}: {} does not hold{}{}", base != nullptr ? base + 1 : file, line, condition,
       message.empty() ? "" : ": ", message);
}

}  // namespace trireme
