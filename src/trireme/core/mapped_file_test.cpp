#include "trireme/core/mapped_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/folder.h"

namespace trireme {
namespace {

TEST(MappedFile, NoticesThatItWasCut) {
  const test::Folder folder;
  const std::string path = folder.write("data.bin", std::string(10'000, 'x'));
  const MappedFile file(path);
  file.check_whole();
  std::filesystem::resize_file(path, 12'000);  // longer is whole
  file.check_whole();
  std::filesystem::resize_file(path, 100);
  try {
    file.check_whole();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::failure);
    test::expect_contains(e.message(), "data.bin: was cut from 10000 to 100 bytes");
  }
  // Another file under the name is none of its business: the mapped one is still there.
  const std::string other = folder.write("other.bin", std::string(5000, 'x'));
  const MappedFile kept(other);
  std::filesystem::rename(folder.write("new.bin", "short"), other);
  kept.check_whole();
}

}  // namespace
}  // namespace trireme
