#include "trireme/data/documents.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/data/dataset.h"
#include "trireme/data/encode_documents.h"
#include "trireme/data/token_files.h"
#include "trireme/data/token_writer.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

const std::string kGpt2 = source_dir() + "/tests/tokenizers/gpt2.json";

class Documents : public testing::Test {
 protected:
  Documents() {
    std::string name = (fs::temp_directory_path() / "trireme-documents-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~Documents() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }
  std::vector<TextFile> files(const std::string& name, const std::string& text) const {
    return {{write(name, text), name, text.size()}};
  }
  static std::string refusal(const std::function<void()>& request) {
    try {
      request();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
      return e.message();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }

  fs::path folder_;
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

std::vector<std::int32_t> encode(std::span<const TextFile> files, const Tokenizer& tokenizer, int threads,
                                 const std::string& field = "text") {
  std::vector<std::int32_t> ids;
  EncodeOptions options;
  options.threads = threads;
  options.field = field;
  encode_documents(files, tokenizer, options,
                   [&](std::span<const std::int32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); });
  return ids;
}

TEST_F(Documents, JsonLinesAreDocuments) {
  const auto input = files("t.jsonl",
                           "{\"id\": 1, \"text\": \"one \\ud83d\\ude00\", \"more\": {\"text\": \"no\"}}\r\n\n"
                           "{\"text\":\"two\"}");
  DocumentReader reader(input, Cuts::lines, "text");
  const auto documents = reader.next(1000);
  ASSERT_EQ(documents.size(), 2U);
  std::string storage;
  EXPECT_EQ(documents[0].text("text", storage), "one 😀");
  EXPECT_EQ(documents[1].text("text", storage), "two");
  EXPECT_EQ(documents[1].line, 3);
  EXPECT_TRUE(reader.next(1000).empty());
}

TEST_F(Documents, BadLinesAreNamed) {
  const auto problem = [&](const std::string& line) {
    const auto input = files("t.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
    return refusal([&] { encode(input, *open_tokenizer("bytes"), 1); });
  };
  expect_contains(problem("{\"text\": "), "t.jsonl:2: no valid JSON");
  expect_contains(problem("{\"txet\": \"a\"}"), "did you mean \"txet\"?");
  expect_contains(problem("{\"text\": 3}"), "\"text\" must be a string");
  EXPECT_EQ(problem("{\"text\": 3}").find("did you mean"), std::string::npos);
  expect_contains(problem("[\"text\"]"), "must be a JSON object");
  expect_contains(problem("{\"a\": {\"text\": \"x\"}}"), "has no string \"text\"");
}

TEST_F(Documents, EachEndsWithItsToken) {
  const auto tokenizer = open_tokenizer(kGpt2);
  const auto input = files("t.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  std::vector<std::int32_t> expected = tokenizer->encode("one");
  expected.push_back(0);
  tokenizer->encode("two", Specials::none, expected);
  expected.push_back(0);
  EXPECT_EQ(encode(input, *tokenizer, 2), expected);
}

TEST_F(Documents, LongFilesInPartsGiveTheSameTokens) {
  std::string text;
  for (std::int64_t i = 0; text.size() < (3U << 20); ++i)
    text += "line " + std::to_string(i * 7919 % 10007) + (i % 7 == 0 ? ";\n\n  x" : i % 3 == 0 ? " \n" : ".\n");
  const auto tokenizer = open_tokenizer(kGpt2);
  const auto input = files("t.txt", text);
  std::vector<std::int32_t> whole = tokenizer->encode(text);
  whole.push_back(0);
  EXPECT_EQ(encode(input, *tokenizer, 1), whole);
  EXPECT_EQ(encode(input, *tokenizer, 3), whole);
}

// Text with everything that a JSON string may hold, as it is and as a JSON string.
struct Long {
  std::string text;
  std::string written;
  void add(const std::string& plain, const std::string& in_json) {
    text += plain;
    written += in_json;
  }
};

Long long_text(std::size_t bytes, bool lines) {
  Long l;
  for (std::int64_t i = 0; l.text.size() < bytes; ++i) {
    const std::string words = "line " + std::to_string(i * 7919 % 10007) + " of some words";
    l.add(words, words);
    if (i % 5 == 0) l.add(" \"q\\n\" \t/", " \\\"q\\\\n\\\" \\t\\/");
    if (i % 7 == 0) l.add("é😀中", "\\u00e9\\uD83D\\ude00中");
    if (i % 11 == 0) l.add("Aé", "\\u0041é");
    if (lines && i % 3 == 0) l.add(".\nx", ".\\nx");
    if (lines && i % 13 == 0) l.add("\n\n ", "\\n\\n\\u0020");
    l.add(" ", " ");
  }
  return l;
}

// Of a line that is longer than what is parsed whole.
struct Encoded {
  std::vector<std::int32_t> ids;
  EncodeProgress totals;
};
Encoded encode_all(std::span<const TextFile> files, const Tokenizer& tokenizer, int threads) {
  Encoded e;
  EncodeOptions options;
  options.threads = threads;
  e.totals = encode_documents(files, tokenizer, options, [&](std::span<const std::int32_t> part) {
    e.ids.insert(e.ids.end(), part.begin(), part.end());
  });
  return e;
}

TEST_F(Documents, LongJsonLinesComeInParts) {
  for (const bool lines : {true, false}) {
    const Long l = long_text(std::size_t{2} << 20, lines);
    const std::string other(std::size_t{1} << 20, 'o');
    const auto input = files("t.jsonl", "{\"text\": \"first\"}\n{\"a\": [\"" + other + "\", {\"text\": \"" + other +
                                            "\"}], \"text\": \"" + l.written + "\", \"b\": \"" + l.written +
                                            "\"}\n{\"text\": \"last\"}\n");
    for (const std::string& name : {kGpt2, std::string("bytes")}) {
      const auto tokenizer = open_tokenizer(name);
      std::vector<std::int32_t> expected;
      for (const std::string& text : {std::string("first"), l.text, std::string("last")}) {
        tokenizer->encode(text, Specials::none, expected);
        if (const auto end = tokenizer->end_of_text()) expected.push_back(*end);
      }
      for (const int threads : {1, 3}) {
        const Encoded e = encode_all(input, *tokenizer, threads);
        EXPECT_TRUE(e.ids == expected) << name << (lines ? "" : ", no lines");
        EXPECT_EQ(e.totals.documents, 3U);
        EXPECT_LE(e.totals.longest, std::uint64_t{256} << 10);
      }
    }
  }
}

TEST_F(Documents, BytesAreCutAnywhere) {
  std::string written;
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) {
    written += "\\ud83d\\ude00中\\u4e2d\\\\";
    text += "😀中中\\";
  }
  const auto input = files("t.jsonl", "{\"text\":\"" + written + "\"}");
  const auto tokenizer = open_tokenizer("bytes");
  const Encoded e = encode_all(input, *tokenizer, 2);
  EXPECT_TRUE(e.ids == tokenizer->encode(text));
  EXPECT_LE(e.totals.longest, std::uint64_t{256} << 10);
}

TEST_F(Documents, LongLinesThatAreBadAreNamed) {
  const std::string text(std::size_t{1} << 20, 'x');
  const auto problem = [&](const std::string& line) {
    const auto input = files("t.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
    return refusal([&] { encode(input, *open_tokenizer("bytes"), 1); });
  };
  expect_contains(problem("{\"text\": \"" + text), "t.jsonl:2: no valid JSON (at byte");
  expect_contains(problem("{\"text\": \"" + text + "\\q\"}"), "no valid JSON (at byte 10485");
  expect_contains(problem("{\"text\": \"" + text + "\\ud83d.\"}"), "no valid JSON");
  expect_contains(problem("{\"text\": \"" + text + "\\u00g0\"}"), "no valid JSON");
  expect_contains(problem("{\"text\": \"" + text + "\t\"}"), "no valid JSON");
  expect_contains(problem("{\"text\": \"" + text + "\"} 3"), "no valid JSON");
  expect_contains(problem("{\"txet\": \"" + text + "\"}"), "did you mean \"txet\"?");
  expect_contains(problem("{\"a\": \"" + text + "\", \"text\": 3}"), "\"text\" must be a string");
  expect_contains(problem("[\"" + text + "\"]"), "must be a JSON object");
}

// What a short line makes of bytes that are no UTF-8, a long one does.
TEST_F(Documents, LongLinesAreRepaired) {
  const std::string bad = "a\xFF b\xE4\xB8 c\xC3";
  std::string text;
  std::string repaired;
  while (text.size() < (std::size_t{1} << 20)) {
    text += bad + " words and more words";
    repaired += "a\xEF\xBF\xBD b\xEF\xBF\xBD c\xEF\xBF\xBD words and more words";
  }
  const auto tokenizer = open_tokenizer("bytes");
  const auto input = files("t.jsonl", "{\"\xFF\": \"" + text + "\", \"text\": \"" + text + "\"}");
  EXPECT_TRUE(encode_all(input, *tokenizer, 2).ids == tokenizer->encode(repaired));
}

// Text for which there is no memory is refused before it is encoded: a file by its size, a line when it is met.
TEST_F(Documents, WhatMustBeEncodedAtOnceIsRefusedWithoutMemory) {
  const auto pieces = open_tokenizer(source_dir() + "/tests/tokenizers/sentencepiece.json");
  const std::string text = long_text(std::size_t{1} << 20, true).text;
  EncodeOptions options;
  options.memory = encoding_bytes(1, 0);
  const auto problem = [&](std::span<const TextFile> input, const Tokenizer& tokenizer) {
    return refusal([&] {
      encode_documents(input, tokenizer, options, [](std::span<const std::int32_t>) { ADD_FAILURE() << "encoded"; });
    });
  };
  const auto whole = files("t.txt", text);
  expect_contains(problem(whole, *pieces), "t.txt: 1.0 MiB of text must be encoded at once");
  const auto line = files("t.jsonl", "{\"text\": \"" + std::string(std::size_t{1} << 20, 'x') + "\"}\n");
  expect_contains(problem(line, *pieces), "t.jsonl:1: 1.0 MiB of text must be encoded at once");
  expect_contains(problem(line, *open_tokenizer(kGpt2)), "t.jsonl:1: 1.0 MiB of text must be encoded at once");
  options.memory = encoding_bytes(1, text.size());
  EXPECT_GT(encode_documents(whole, *pieces, options, [](std::span<const std::int32_t>) {}).tokens, 0U);
  options.memory = 1;
  expect_contains(problem(whole, *open_tokenizer(kGpt2)), "take fewer threads");
}

TEST_F(Documents, TokenFilesAreReadBack) {
  const std::vector<std::int32_t> tokens = {1, 2, 3, 500, 65535, 7};
  for (const TokenType type : {TokenType::u16, TokenType::u32})
    for (const TokenFormat format : {TokenFormat::raw, TokenFormat::llmc}) {
      const std::string file = path("t.bin");
      {
        TokenWriter writer(file, format, type);
        writer.write(std::span(tokens).first(2));
        writer.write(std::span(tokens).subspan(2));
        EXPECT_FALSE(fs::exists(file));
        writer.commit();
      }
      const std::vector<std::string> names = {file};
      const auto sources = open_token_files(names, type == TokenType::u16 ? "uint16" : "uint32", 70000, "tokens");
      const TokenStream& stream = sources.at(0).stream;
      std::vector<std::int32_t> read(static_cast<std::size_t>(stream.size()));
      stream.read(0, read);
      EXPECT_EQ(read, tokens);
      fs::remove(file);
    }
  { TokenWriter forgotten(path("never.bin"), TokenFormat::raw, TokenType::u16); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Documents, TrainingTextIsEncoded) {
  DataConfig config;
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "{\"text\": \"document number " + std::to_string(i) + "\"}\n";
  config.text = {write("t.jsonl", lines)};
  config.tokenizer = kGpt2;
  const Data data = open_data(config, {.context = 16});
  EXPECT_EQ(data.vocab, 3000);
  ASSERT_NE(data.tokenizer, nullptr);
  Batch batch;
  data.train->resize(batch, 1);
  data.train->read(0, 0, batch);
  const std::string text = data.tokenizer->decode(batch.tokens, Specials::none);
  expect_contains(text, "document number 0document");
  expect_contains(data.summary, "tokens");
  EXPECT_GT(data.unigram_entropy, 1);
  EXPECT_LT(data.unigram_entropy, std::log(3000.0));

  config.tokenizer = "bytes";
  const Data bytes = open_data(config, {.context = 16});
  EXPECT_EQ(bytes.vocab, 256);
  bytes.train->resize(batch, 1);
  bytes.train->read(0, 0, batch);
  EXPECT_EQ(bytes.tokenizer->decode(batch.tokens), "document number ");
}

TEST_F(Documents, TextThatDoesNotFitIsRefused) {
  DataConfig config;
  config.text = {write("t.txt", std::string(100000, 'a') + " " + std::string(1000, 'b'))};
  config.tokenizer = kGpt2;
  OpenOptions options;
  options.text_memory = 1000;
  const std::string message = refusal([&] { open_data(config, {.context = 16}, options); });
  expect_contains(message, "trireme tokenize");
  expect_contains(message, "name that in tokens");
  expect_contains(refusal([&] { open_data(config, {.context = 16, .vocab = 100}); }), "vocab = 100");
  options = {};
  options.memory = std::uint64_t{50} << 20;
  expect_contains(refusal([&] { open_data(config, {.context = 16}, options); }), "encoding text on 1 threads");
}

}  // namespace
}  // namespace trireme::data
