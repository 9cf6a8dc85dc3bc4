#include "trireme/data/tokenizer/train_bpe.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/json_tokenizer.h"

namespace trireme::data {
namespace {

class TrainBpe : public testing::Test {
 protected:
  TrainBpe() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-bpe-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~TrainBpe() override { std::filesystem::remove_all(folder_); }

  std::vector<TextFile> files(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return {{path, name, text.size()}};
  }

  std::filesystem::path folder_;
};

TEST_F(TrainBpe, MergesTheMostFrequentPairFirst) {
  TrainBpeOptions options;
  options.vocab = 257 + 3;
  options.min_frequency = 1;
  const TrainedBpe trained = train_bpe(files("t.txt", "abab abab xy"), options);
  const auto document = nlohmann::json::parse(trained.json);
  const std::vector<std::vector<std::string>> merges = document["model"]["merges"];
  ASSERT_EQ(merges.size(), 3U);
  EXPECT_EQ(merges[0], (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(merges[1], (std::vector<std::string>{"ab", "ab"}));
  EXPECT_EQ(document["model"]["vocab"]["<|endoftext|>"], 0);
  const JsonTokenizer t(trained.json, "t.json");
  EXPECT_EQ(t.vocab(), 260);
  EXPECT_EQ(t.encode("abab").size(), 1U);
  EXPECT_EQ(t.end_of_text(), 0);
}

TEST_F(TrainBpe, StopsWhereNothingIsFrequentEnough) {
  TrainBpeOptions options;
  options.vocab = 1000;
  options.min_frequency = 3;
  // (a, b) occurs three times, (Ġ, ab) twice.
  EXPECT_EQ(train_bpe(files("t.txt", "ab ab ab cd"), options).vocab, 257 + 1);
}

TEST_F(TrainBpe, GivesTheSameForAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "word" + std::to_string(i * 7919 % 1000) + (i % 5 == 0 ? "\n" : " ");
  TrainBpeOptions options;
  options.vocab = 600;
  const std::vector<TextFile> input = files("t.txt", text);
  const std::string one = train_bpe(input, options).json;
  options.threads = 3;
  EXPECT_EQ(train_bpe(input, options).json, one);
}

TEST_F(TrainBpe, ReadsJsonLinesAndEveryPattern) {
  for (const char* pattern : {"gpt2", "llama3", "qwen"}) {
    TrainBpeOptions options;
    options.vocab = 270;
    options.pattern = pattern;
    const TrainedBpe trained =
        train_bpe(files("t.jsonl", "{\"text\": \"hello hello 1234\"}\n{\"text\": \"hello\\u00e9\"}\n"), options);
    const JsonTokenizer t(trained.json, "t.json");
    EXPECT_EQ(t.decode(t.encode("hello é 1234\n")), "hello é 1234\n");
  }
}

TEST_F(TrainBpe, RefusesImpossibleSettings) {
  TrainBpeOptions options;
  const auto input = files("t.txt", "text");
  options.vocab = 256;
  EXPECT_THROW(train_bpe(input, options), Error);
  options.vocab = 300;
  options.specials = {"<a>", "<a>"};
  EXPECT_THROW(train_bpe(input, options), Error);
  options.specials = {};
  options.pattern = "gpt9";
  EXPECT_THROW(train_bpe(input, options), Error);
}

}  // namespace
}  // namespace trireme::data
