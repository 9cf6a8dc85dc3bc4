// The tokenizer that a folder or a file of tokens comes with is the one that is used, or the program says what is
// missing.
#include <gtest/gtest.h>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kTiedGpt2 = source_dir() + "/tests/huggingface/gpt2-tied";

class Tokenizers : public Program {
 protected:
  // gpt2-tied with the files that older folders have in the place of tokenizer.json.
  void write_older() const {
    fs::copy(kTiedGpt2, folder() / "older", fs::copy_options::recursive);
    const auto json = nlohmann::ordered_json::parse(read("older/tokenizer.json"));
    fs::remove(folder() / "older/tokenizer.json");
    write("older/tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
    write("older/vocab.json", json["model"]["vocab"].dump());
    std::string merges = "#version: 0.2\n";
    for (const auto& merge : json["model"]["merges"])
      merges += (merge.is_string() ? merge.get<std::string>()
                                   : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) +
                "\n";
    write("older/merges.txt", merges);
  }
};

// Bytes are other tokens than those that the weights know.
TEST_F(Tokenizers, AFolderWithoutOneDoesNotReadText) {
  fs::copy(kTiedGpt2, folder() / "none", fs::copy_options::recursive);
  fs::remove(folder() / "none/tokenizer.json");
  const std::vector<std::string> small = {"--data.text=text.txt", "--model.context=16", "--train.steps=1"};
  std::vector<std::string> words = {"train", "none"};
  words.insert(words.end(), small.begin(), small.end());
  const std::string error = refused(words);
  expect_part(error, "none");
  expect_part(error, "data.tokenizer");
  expect_part(refused({"generate", "--from=none", "--prompt=a"}), "--prompt-tokens");
  expect_part(refused({"eval", "--from=none", "--data.text=text.txt"}), "data.tokenizer");
  // By way of a run just the same.
  done({"import", "none", "imported", "--model.context=16"});
  expect_part(refused({"train", "imported", "--resume", "--data.text=text.txt"}), "data.tokenizer");
  words.emplace_back("--data.tokenizer=bytes");
  done(words);
}

TEST_F(Tokenizers, OlderFilesOfGpt2AreTheSameTokenizer) {
  write_older();
  const std::vector<std::string> small = {"--data.text=text.txt", "--model.context=16", "--train.steps=2",
                                          "--train.batch=4"};
  const auto train = [&](const std::string& from, const std::string& to) {
    std::vector<std::string> words = {"train", from, "--output.dir=" + to};
    words.insert(words.end(), small.begin(), small.end());
    return done(words);
  };
  train(kTiedGpt2, "newer-run");
  expect_part(train("older", "older-run").out, "older/vocab.json");
  EXPECT_TRUE(state("older-run", 2) == state("newer-run", 2));
  // The run has what it needs of the folder.
  fs::remove_all(folder() / "older");
  EXPECT_EQ(done({"generate", "--from=older-run", "--prompt=the", "--tokens=8", "--seed=3"}).out,
            done({"generate", "--from=newer-run", "--prompt=the", "--tokens=8", "--seed=3"}).out);
  write_older();
  write("older/tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  const std::vector<std::string> again = {"train", "older", "--data.text=text.txt", "--model.context=16", "--dry-run"};
  expect_part(refused(again), "Qwen2Tokenizer");
  write("older/tokenizer_config.json", R"({"tokenizer_class": 5})");
  expect_part(refused(again), "older/tokenizer_config.json.tokenizer_class");
  // Some tools write null for what they have no word for.
  write("older/tokenizer_config.json", R"({"tokenizer_class": null, "add_prefix_space": null})");
  done(again);
}

// A refusal proposes a folder that holds one; each way of naming it is the same run.
TEST_F(Tokenizers, AFolderStandsForTheFileInIt) {
  const auto train = [&](const std::string& tokenizer, const std::string& to) {
    done({"train", "tiny.toml", "--data.tokenizer=" + tokenizer, "--output.dir=" + to});
    return state(to, kSteps);
  };
  expect_part(refused({"train", "tiny.toml", "--data.tokenizer=nothere.json"}), "or a folder that holds one");
  expect_part(refused({"train", "tiny.toml", "--data.tokenizer=byte"}), "or a folder that holds one");
  const std::string by_file = train(kTiedGpt2 + "/tokenizer.json", "by-file");
  EXPECT_TRUE(train(kTiedGpt2, "by-folder") == by_file);
  EXPECT_TRUE(train(kTiedGpt2 + "/", "by-slash") == by_file);
  write("named.toml", "[data]\ntokenizer = \"" + kTiedGpt2 + "\"\n");
  expect_part(done({"config", "named.toml"}).out, kTiedGpt2 + "/tokenizer.json");
  EXPECT_EQ(done({"generate", "--from=by-folder", "--prompt=the", "--tokens=8", "--seed=3"}).out,
            done({"generate", "--from=by-file", "--prompt=the", "--tokens=8", "--seed=3"}).out);
  fs::create_directory(folder() / "empty");
  expect_part(refused({"train", "tiny.toml", "--data.tokenizer=empty"}), "empty/tokenizer.json");
}

TEST_F(Tokenizers, GiveTheVocabularyOfTokenFiles) {
  const auto learnt =
      nlohmann::json::parse(done({"tokenize", "--train=300", "--out=tokenizer.json", "--json", "text.txt"}).out);
  done({"tokenize", "--tokenizer=tokenizer.json", "--out=data.bin", "text.txt"});
  const Finished f = done({"train", "tiny.toml", "--data.text=", "--data.tokens=data.bin",
                           "--data.tokenizer=tokenizer.json", "--output.dir=run"});
  expect_part(f.out, "vocabulary " + std::to_string(learnt["vocab"].get<int>()));
}

}  // namespace
}  // namespace trireme::testing
