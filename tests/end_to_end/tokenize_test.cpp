// A vocabulary learnt from text, text turned into tokens, and models trained on both.
#include <gtest/gtest.h>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Tokenize : public Program {};

TEST_F(Tokenize, FromTextToATrainedModel) {
  const auto learnt =
      nlohmann::json::parse(done({"tokenize", "--train=300", "--out=tokenizer.json", "--json", "text.txt"}).out);
  const std::int64_t vocab = learnt["vocab"];
  EXPECT_GT(vocab, 257);
  EXPECT_LE(vocab, 300);
  refused({"tokenize", "--train=300", "--out=tokenizer.json", "text.txt"});  // it is there already

  for (const char* format : {"raw", "llmc"}) {
    const std::string file = std::string(format) + ".bin";
    const auto encoded = nlohmann::json::parse(
        done({"tokenize", "--tokenizer=tokenizer.json", "--out=" + file, "--format", format, "--json", "text.txt"})
            .out);
    EXPECT_EQ(encoded["documents"], 1);
    EXPECT_EQ(encoded["type"], "uint16");
    const std::size_t header = format == std::string("llmc") ? 1024 : 0;
    EXPECT_EQ(read(file).size(), header + 2 * encoded["tokens"].get<std::size_t>());
    done({"train", "tiny.toml", "--data.text=[]", "--data.tokens=" + file, "--model.vocab=" + std::to_string(vocab),
          "--output.dir=" + std::string(format)});
  }
  const Finished trained = done({"train", "tiny.toml", "--data.tokenizer=tokenizer.json", "--output.dir=from-text"});
  EXPECT_NE(trained.out.find("token frequencies alone"), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("vocabulary " + std::to_string(vocab)), std::string::npos) << trained.out;
}

TEST_F(Tokenize, NothingThatIsReadIsOverwritten) {
  const std::string before = read("text.txt");
  for (const char* out : {"--out=text.txt", "--out=./text.txt"}) {
    EXPECT_NE(refused({"tokenize", "--tokenizer=bytes", out, "text.txt", "--overwrite"}).find("text.txt"),
              std::string::npos);
    refused({"tokenize", "--train=300", out, ".", "--overwrite"});
  }
  EXPECT_EQ(read("text.txt"), before);
  done({"tokenize", "--train=300", "--out=tokenizer.json", "text.txt"});
  refused({"tokenize", "--tokenizer=tokenizer.json", "--out=tokenizer.json", "text.txt", "--overwrite"});
  done({"tokenize", "--tokenizer=bytes", "--out=text.bin", "text.txt"});
  done({"tokenize", "--tokenizer=tokenizer.json", "--out=text.bin", "text.txt", "--overwrite"});
}

// A tokenizer may be given as the folder that holds it.
TEST_F(Tokenize, FilesOfTheTokenizerAreNotOverwritten) {
  std::filesystem::create_directory(folder() / "mine");
  done({"tokenize", "--train=300", "--out=mine/tokenizer.json", "text.txt"});
  const std::string before = read("mine/tokenizer.json");
  expect_part(refused({"tokenize", "--tokenizer=mine", "--out=mine/tokenizer.json", "text.txt", "--overwrite"}),
              "--out mine/tokenizer.json is read as mine/tokenizer.json: it would be overwritten");
  EXPECT_EQ(read("mine/tokenizer.json"), before);
}

TEST_F(Tokenize, NothingButTokensIsOverwrittenWithTokens) {
  const std::vector<std::string> words = {"tokenize", "--tokenizer=bytes", "text.txt", "--overwrite"};
  const auto to = [&](const std::string& out, const std::string& format = "raw") {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--out=" + out, "--format=" + format});
    return all;
  };
  const std::string before = read("tiny.toml");
  expect_part(refused(to("tiny.toml")), "--out tiny.toml: that is there, and is not known as a token file");
  EXPECT_EQ(read("tiny.toml"), before);
  write("empty.dat", "");
  done(to("empty.dat", "llmc"));
  done(to("empty.dat"));     // with llm.c's header
  refused(to("empty.dat"));  // now without
  done(to("x.bin"));
  done(to("x.bin"));
}

// A name alone says nothing: weights, images and a diary are called .bin too. A link stays one, and what it leads to is
// judged and named.
TEST_F(Tokenize, FilesOfOthersAreNotReplacedForTheirName) {
  const auto to = [](const std::string& out) {
    return std::vector<std::string>{"tokenize", "--tokenizer=bytes", "text.txt", "--overwrite", "--out=" + out};
  };
  std::string random;
  for (unsigned i = 0; i < 4000; ++i) random += static_cast<char>((i * 2654435761U) >> 24);
  const std::vector<std::string> others = {"my thesis\n", random, random.substr(1), read("text.txt")};
  for (const std::string& mine : others) {
    write("mine.bin", mine);
    const std::string error = refused(to("mine.bin"));
    expect_parts(error, {"--out mine.bin: that is there, and is not known as a token file"});
    EXPECT_EQ(read("mine.bin"), mine);
  }
  // What comes first may look like tokens.
  const std::string late = std::string(3 << 20, '\0') + random;
  write("late.bin", late);
  refused(to("late.bin"));
  EXPECT_EQ(read("late.bin"), late);
  std::filesystem::create_symlink("mine.bin", folder() / "link.bin");
  expect_part(refused(to("link.bin")), "--out link.bin (a link to mine.bin): that is there");
  EXPECT_EQ(read("mine.bin"), others.back());
  write("notes.txt", std::string("a\0b\0", 4));
  std::filesystem::create_symlink("notes.txt", folder() / "tokens.bin");
  expect_part(refused(to("tokens.bin")), "(a link to notes.txt)");
  EXPECT_EQ(read("notes.txt"), std::string("a\0b\0", 4));
  // Tokens that Megatron's index describes are not those of tokenize.
  done(to("x.bin"));
  write("x.idx", "");
  refused(to("x.bin"));
  std::filesystem::remove(folder() / "x.idx");
  std::filesystem::create_symlink("x.bin", folder() / "same.bin");
  expect_part(done(to("same.bin")).out, "wrote same.bin (a link to x.bin)");
  EXPECT_TRUE(std::filesystem::is_symlink(folder() / "same.bin"));
  // Of a vocabulary with more than 65,536 tokens.
  std::vector<std::string> wide = to("wide.bin");
  wide.emplace_back("--type=uint32");
  done(wide);
  done(to("wide.bin"));
}

TEST_F(Tokenize, JsonLinesTrainToo) {
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += R"({"body": "line )" + std::to_string(i) + "\"}\n";
  write("t.jsonl", lines);
  const auto encoded = nlohmann::json::parse(
      done({"tokenize", "--tokenizer=bytes", "--out=t.bin", "--field=body", "--json", "t.jsonl"}).out);
  EXPECT_EQ(encoded["documents"], 400);
  const std::string problem = refused({"tokenize", "--tokenizer=bytes", "--out=u.bin", "t.jsonl"});
  EXPECT_NE(problem.find("t.jsonl:1"), std::string::npos) << problem;
  EXPECT_FALSE(exists("u.bin"));
}

}  // namespace
}  // namespace trireme::testing
