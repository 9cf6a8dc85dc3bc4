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

// A run that goes on elsewhere, or when the cache is gone, computes by the choices that it was begun with.
TEST_F(Cache, WhatWasRecordedWithARunComesFirst) {
  AlgorithmCache cache("gemm");
  Algorithms run;
  run.keep(cache, "8x8", "a");
  run.keep(cache, "9x9", "b");
  EXPECT_EQ(run.used(), (std::vector<ChosenAlgorithm>{{"gemm", "8x8", "a"}, {"gemm", "9x9", "b"}}));
  run.use_recorded(std::vector<ChosenAlgorithm>{{"gemm", "8x8", "theirs"}, {"gemm", "7x7", "c"}});
  run.use_recorded(std::vector<ChosenAlgorithm>{{"gemm", "8x8", "later"}});
  EXPECT_EQ(run.find(cache, "8x8"), "theirs");
  EXPECT_EQ(run.find(cache, "9x9"), "b");
  EXPECT_EQ(run.find(cache, "6x6"), std::nullopt);
  EXPECT_EQ(run.find(AlgorithmCache("gemm"), "7x7"), "c");
  EXPECT_EQ(run.find(AlgorithmCache("another"), "7x7"), std::nullopt);
  EXPECT_EQ(run.used(),
            (std::vector<ChosenAlgorithm>{{"gemm", "7x7", "c"}, {"gemm", "8x8", "theirs"}, {"gemm", "9x9", "b"}}));
  // One that cannot be used any more is chosen anew, and that is what the run then uses.
  run.keep(cache, "8x8", "anew");
  EXPECT_EQ(run.used()[1].value, "anew");
}

// Several runs may live in one process, each with a record of its own.
TEST_F(Cache, RunsShareNothingButTheCache) {
  AlgorithmCache cache("gemm");
  Algorithms one;
  Algorithms other;
  one.use_recorded(std::vector<ChosenAlgorithm>{{"gemm", "8x8", "recorded"}});
  EXPECT_EQ(one.find(cache, "8x8"), "recorded");
  EXPECT_EQ(other.find(cache, "8x8"), std::nullopt);
  other.keep(cache, "8x8", "measured");
  other.note_measured(0.5);
  EXPECT_EQ(one.find(cache, "8x8"), "recorded");
  one.keep(cache, "9x9", "b");
  EXPECT_EQ(other.find(cache, "9x9"), "b");  // measured once on a machine
  EXPECT_EQ(one.used(), (std::vector<ChosenAlgorithm>{{"gemm", "8x8", "recorded"}, {"gemm", "9x9", "b"}}));
  EXPECT_EQ(other.used(), (std::vector<ChosenAlgorithm>{{"gemm", "8x8", "measured"}, {"gemm", "9x9", "b"}}));
  EXPECT_EQ(one.measured().choices, 0);
  EXPECT_EQ(other.measured().choices, 1);
}

TEST_F(Cache, RecordedChoicesAreTextThatReadsBack) {
  const std::vector<ChosenAlgorithm> chosen = {{"gemm-H200-12", "8x8/nt", "00ff"}, {"convolution", "3x3", "12:3=4"}};
  const std::string text = algorithms_text(chosen);
  EXPECT_EQ(parse_algorithms(text), chosen);
  EXPECT_EQ(algorithms_text({}), "");
  EXPECT_TRUE(parse_algorithms("").empty());
  EXPECT_EQ(parse_algorithms(text.substr(0, text.size() - 3)), std::vector<ChosenAlgorithm>{chosen.front()});
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    for (const ChosenAlgorithm& c : parse_algorithms(flipped))
      EXPECT_TRUE(c == chosen[0] || c == chosen[1]) << "byte " << i;
    EXPECT_NE(parse_algorithms(flipped), chosen) << "byte " << i;
  }
}

TEST_F(Cache, WithoutAFolderItIsOfThisProcess) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  AlgorithmCache cache("gemm");
  cache.keep("8x8", "a");
  EXPECT_EQ(cache.find("8x8"), "a");
}

}  // namespace
}  // namespace trireme::device
