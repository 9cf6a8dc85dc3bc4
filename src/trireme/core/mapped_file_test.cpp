#include "trireme/core/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>

#include "support/folder.h"

namespace trireme {
namespace {

TEST(MappedFile, NoticesThatItWasCut) {
  const test::Folder folder;
  const std::string path = folder.write("data.bin", std::string(10'000, 'x'));
  const MappedFile file(path);
  std::array<std::byte, 3> bytes{};
  const auto read = [&](const MappedFile& from, std::size_t offset) {
    bytes.fill(std::byte{0});
    from.read(from.bytes().data() + offset, bytes);
    EXPECT_EQ(bytes[2], std::byte{'x'});
  };
  read(file, 9'997);
  std::filesystem::resize_file(path, 12'000);  // longer is whole
  read(file, 9'997);
  std::filesystem::resize_file(path, 100);
  try {
    read(file, 9'997);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::failure);
    test::expect_contains(e.message(), "data.bin: was cut from 10000 to 100 bytes");
  }
  // Another file under the name is none of its business: the mapped one is still there.
  const std::string other = folder.write("other.bin", std::string(5000, 'x'));
  const MappedFile kept(other);
  std::filesystem::rename(folder.write("new.bin", "short"), other);
  read(kept, 4'000);
}

// A pipe has no end to map, and nobody writes to this one.
TEST(MappedFile, APipeIsRefusedAtOnce) {
  const test::Folder folder;
  const std::string path = folder.path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  try {
    const MappedFile file(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    test::expect_contains(e.message(), "pipe: is not a regular file");
  }
}

}  // namespace
}  // namespace trireme
