// Attention that stays within documents (model.document_end).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Documents : public Program {
 protected:
  // Documents of eight tokens, each ended by token 0.
  void write_documents(int count) const {
    std::string bytes;
    for (int i = 0; i < 8 * count + 1; ++i) {
      bytes += static_cast<char>(i % 8 == 7 ? 0 : 1 + (i * i + i / 8 * 5) % 23);
      bytes += '\0';
    }
    write("documents.bin", bytes);
  }

  std::vector<nlohmann::json> trained(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",
                                      "--model.layers=3",
                                      "--model.width=32",
                                      "--model.heads=4",
                                      "--model.vocab=24",
                                      "--data.text=[]",
                                      "--data.tokens=documents.bin",
                                      "--data.order=sequential",
                                      "--data.holdout=0",
                                      "--train.steps=12",
                                      "--train.warmup=2",
                                      "--output.log_every=1",
                                      "--output.dir=" + name};
    words.insert(words.end(), more.begin(), more.end());
    done(words);
    return metrics(name);
  }

  static double farthest(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b) {
    double most = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      for (const char* key : {"loss", "grad_norm"})
        most = std::max(most, std::abs(a[i][key].get<double>() / b[i][key].get<double>() - 1));
    return most;
  }
};

const std::vector<std::string> kPacked = {"--model.family=llama", "--model.kv_heads=2", "--model.context=32",
                                          "--train.batch=4"};

std::vector<std::string> packed(std::vector<std::string> more) {
  more.insert(more.begin(), kPacked.begin(), kPacked.end());
  return more;
}

// Rotary positions count from one token to another, so a document's place in a row makes no difference.
TEST_F(Documents, TrainAsInRowsOfTheirOwn) {
  write_documents(200);
  const auto apart = trained("apart", {"--model.family=llama", "--model.kv_heads=2", "--model.context=8",
                                       "--train.batch=16", "--parallel.mesh=dp=1"});
  EXPECT_LT(farthest(trained("one", packed({"--model.document_end=0", "--parallel.mesh=dp=1"})), apart), 2e-5);
  EXPECT_LT(farthest(trained("ranks", packed({"--model.document_end=0", "--parallel.mesh=pp=2,dp=2",
                                              "--train.micro_batch=1", "--parallel.zero=2"})),
                     apart),
            2e-5);
  EXPECT_LT(farthest(trained("sharded", packed({"--model.document_end=0", "--parallel.mesh=tp=2",
                                                "--parallel.sequence=true", "--memory.remat=full"})),
                     apart),
            2e-5);
  EXPECT_GT(farthest(trained("joined", packed({"--parallel.mesh=dp=1"})), apart), 1e-3);
}

TEST_F(Documents, GenerateAndResume) {
  write_documents(200);
  const std::vector<std::string> how = {"--model.context=32", "--train.batch=4", "--model.document_end=0",
                                        "--parallel.mesh=dp=1", "--train.schedule=constant"};
  std::vector<std::string> longer = how;
  longer.emplace_back("--train.steps=14");
  const auto whole = trained("whole", longer);
  trained("run", how);
  done({"train", "run", "--resume", "--train.steps=14"});
  EXPECT_EQ(whole.size(), 14U);
  EXPECT_EQ(farthest(metrics("run"), whole), 0.0);
  const auto generated = [&](const std::string& from) {
    return done({"generate", "--from", from, "--prompt-tokens=3,5,7", "--tokens=8", "--temperature=0"}).out;
  };
  EXPECT_FALSE(generated("run").empty());
  EXPECT_EQ(generated("run"), generated("whole"));
}

TEST_F(Documents, AnEndThatNeverComesIsWarnedOf) {
  write_documents(20);
  const std::vector<std::string> words = {
      "train",           "--data.text=[]",  "--data.tokens=documents.bin", "--model.vocab=30", "--model.context=16",
      "--train.steps=1", "--data.holdout=0"};
  const auto with = [&](const char* end) {
    std::vector<std::string> more = words;
    more.emplace_back(end);
    return done(more).err;
  };
  expect_part(with("--model.document_end=29"),
              "warning: model.document_end = 29: the first 10 samples have no such token");
  expect_none(with("--model.document_end=0"), "no such token");
}

// Tokens that nobody says the tokenizer of: bytes would be a wrong guess.
TEST_F(Documents, ExportWithoutATokenizerInventsNone) {
  write_documents(50);
  trained("run", {"--model.context=16", "--train.batch=4", "--train.steps=2"});
  expect_part(done({"export", "run", "hf"}).err, "the folder has no tokenizer, since the run names none");
  EXPECT_TRUE(exists("hf/config.json"));
  EXPECT_FALSE(exists("hf/tokenizer.json"));
}

TEST_F(Documents, AnEndOutsideTheVocabularyIsRefused) {
  write_documents(20);
  expect_parts(refused({"train", "--data.text=[]", "--data.tokens=documents.bin", "--model.vocab=24",
                        "--model.document_end=24"}),
               {"model.document_end = 24", "0 to 23"});
}

}  // namespace
}  // namespace trireme::testing
