#include "trireme/core/error.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trireme {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  const char* base = std::strrchr(file, '/');
#ifdef TRIREME_FUZZ
  // A refusal is how bad input ends; this is not one.
  std::fprintf(stderr, "finding: %s:%d: %s: %s\n", file, line, condition, message.c_str());
  std::abort();
#endif
  fail("internal error at {}:{}: check {} failed{}{}", base != nullptr ? base + 1 : file, line, condition,
       message.empty() ? "" : ": ", message);
}

}  // namespace trireme
