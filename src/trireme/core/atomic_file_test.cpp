#include "trireme/core/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "trireme/core/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() { fs::create_directories(folder_); }
  ~AtomicFileTest() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / fmt::format("trireme_atomic_file_{}", ::getpid());
};

TEST_F(AtomicFileTest, StaysAsItWasUntilItIsCommitted) {
  write_file_atomically(at("a"), "before");
  {
    AtomicFile file(at("a"));
    file.write("half");
    AtomicFile second(at("a"));
    second.write("also");
    EXPECT_EQ(read(at("a")), "before");
  }
  EXPECT_EQ(read(at("a")), "before");
  EXPECT_EQ(files(), 1U);
  AtomicFile file(at("a"));
  file.write("xxter");
  file.rewrite(0, "af");
  file.commit();
  EXPECT_EQ(read(at("a")), "after");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFileTest, ALinkStaysOne) {
  write_file_atomically(at("a"), "before");
  fs::create_symlink("a", at("link"));
  write_file_atomically(at("link"), "after");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(read(at("a")), "after");
}

TEST_F(AtomicFileTest, APipeIsWrittenInPlace) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read(at("pipe")); });
  write_file_atomically(at("pipe"), "through it");
  reader.join();
  EXPECT_EQ(got, "through it");
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
}

// As root a rename would replace the device for everybody.
TEST_F(AtomicFileTest, ADeviceStaysOne) {
  fs::create_symlink("/dev/full", at("full"));
  EXPECT_THROW(write_file_atomically(at("full"), "text"), Error);
  EXPECT_TRUE(fs::is_symlink(at("full")));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  write_file_atomically("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(AtomicFileTest, WhatIsNotWrittenNamesItsTarget) {
  try {
    write_file_atomically(at("missing/a"), "text");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(at("missing/a")), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace trireme
