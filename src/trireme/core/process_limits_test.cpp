#include "trireme/core/process_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <utility>

namespace trireme {
namespace {

// A limit, while it is there.
class Limited {
 public:
  Limited(decltype(RLIMIT_AS) resource, std::uint64_t bytes) : resource_(resource) {
    getrlimit(resource_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &before_); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
};

// Sanitizers reserve terabytes.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ProcessLimits, LeaveWhatIsNotReserved) {
  constexpr std::uint64_t kLimit = std::uint64_t{64} << 30;
  EXPECT_EQ(process_limit(0).name, "");
  for (const auto& [resource, flag] : {std::pair{RLIMIT_AS, "-v"}, {RLIMIT_DATA, "-d"}}) {
    const Limited limited(resource, kLimit);
    const ProcessLimit alone = process_limit(0);
    const ProcessLimit many = process_limit(100);
    EXPECT_EQ(alone.name, std::string("ulimit ") + flag + " = 64.0 GiB");
    EXPECT_LT(alone.bytes, kLimit);
    EXPECT_GT(alone.bytes, kLimit / 2);
    // A hundred stacks.
    EXPECT_LT(many.bytes + (100 << 20), alone.bytes);
  }
}
#endif

}  // namespace
}  // namespace trireme
