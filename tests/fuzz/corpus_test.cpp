// Replays what the fuzzers keep: seeds, and every input that was once a finding.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/targets.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"

namespace trireme::fuzz {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, EndsInARefusalOrAnAnswer) {
  const fs::path folder = fs::path(source_dir()) / "tests/fuzz/corpus" / GetParam().name;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty()) << folder;
  int answers = 0;
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    try {
      GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      ++answers;
    } catch (const Error& e) {
      EXPECT_EQ(e.message().find("internal error at "), std::string::npos) << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  EXPECT_GT(answers, 0) << "a fuzzer whose seeds are all refused does not get far";
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace trireme::fuzz
