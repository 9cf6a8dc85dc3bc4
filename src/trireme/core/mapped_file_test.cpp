#include "trireme/core/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

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
  const auto from_cut = [&](const MappedFile& from) { from.read(from.bytes().data() + 9'997, bytes); };
  read(file, 9'997);
  std::filesystem::resize_file(path, 12'000);  // longer is whole
  read(file, 9'997);
  // The system reads zeros in place of what is missing of a page, and nothing of missing pages.
  for (const std::uintmax_t left : {9'999, 100}) {
    SCOPED_TRACE(left);
    std::filesystem::resize_file(path, left);
    try {
      from_cut(file);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::failure);
      test::expect_contains(e.message(), "data.bin: was cut from 10000 to " + std::to_string(left) + " bytes");
    }
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
