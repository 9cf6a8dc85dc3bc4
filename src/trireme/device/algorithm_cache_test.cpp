#include "trireme/device/algorithm_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace trireme::device {
namespace {

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("trireme-algorithms-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path file() const { return folder_ / "trireme" / "gemm"; }
  std::string text() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }

  std::filesystem::path folder_;
};

TEST_F(Cache, KeepsTheFirstAcrossProcesses) {
  AlgorithmCache one("gemm");
  AlgorithmCache other("gemm");
  one.keep("8x8", "a");
  one.keep("8x8", "b");
  other.keep("9x9", "c");
  AlgorithmCache later("gemm");
  EXPECT_EQ(later.find("8x8"), "a");
  EXPECT_EQ(later.find("9x9"), "c");
  EXPECT_EQ(later.find("7x7"), std::nullopt);
}

TEST_F(Cache, AShortLineIsDiscardedAndTheFileReplaced) {
  AlgorithmCache("gemm").keep("8x8", "aaaa");
  AlgorithmCache("gemm").keep("9x9", "bbbb");
  const std::string whole = text();
  write(whole.substr(0, whole.size() - 3));
  AlgorithmCache cut("gemm");
  EXPECT_EQ(cut.find("8x8"), "aaaa");
  EXPECT_EQ(cut.find("9x9"), std::nullopt);
  cut.keep("9x9", "bbbb");  // is not appended to half a line
  EXPECT_EQ(text(), whole);
}

TEST_F(Cache, EveryFlippedByteIsFound) {
  AlgorithmCache("gemm").keep("8x8", "aaaa");
  const std::string whole = text();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    write(flipped);
    AlgorithmCache cache("gemm");
    EXPECT_EQ(cache.find("8x8"), std::nullopt) << "byte " << i;
    cache.keep("8x8", "aaaa");
    EXPECT_EQ(text(), whole) << "byte " << i;
  }
}

TEST_F(Cache, AFileOfAnotherNameOrVersionIsDiscarded) {
  AlgorithmCache("gemm").keep("8x8", "aaaa");
  std::filesystem::copy_file(file(), folder_ / "trireme" / "other");
  EXPECT_EQ(AlgorithmCache("other").find("8x8"), std::nullopt);
  write("8x8 aaaa\n");  // as it was written before there were versions
  EXPECT_EQ(AlgorithmCache("gemm").find("8x8"), std::nullopt);
}

TEST_F(Cache, WithoutAFolderItIsOfThisProcess) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  AlgorithmCache cache("gemm");
  cache.keep("8x8", "a");
  EXPECT_EQ(cache.find("8x8"), "a");
}

}  // namespace
}  // namespace trireme::device
