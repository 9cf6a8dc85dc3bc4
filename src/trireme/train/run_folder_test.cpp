#include "trireme/train/run_folder.h"

#include <gtest/gtest.h>

#include "support/folder.h"

namespace trireme::train {
namespace {

TEST(RunLock, AFolderThatCannotBeLockedIsRefused) {
  const test::Folder folder;
  const std::string message = test::refusal([&] { const RunLock lock(folder.path("missing")); });
  test::expect_contains(message, "cannot be locked");
  test::expect_contains(message, "missing");
  const RunLock first(folder.path());
  test::expect_contains(test::refusal([&] { const RunLock second(folder.path()); }), "another process");
}

}  // namespace
}  // namespace trireme::train
