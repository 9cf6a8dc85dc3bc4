#include "trireme/data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <thread>

#include "support/source_dir.h"
#include "trireme/data/tokenizer/byte_tokenizer.h"
#include "trireme/data/tokenizer/json_tokenizer.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

std::string fixture(const std::string& name) { return source_dir() + "/tests/tokenizers/" + name; }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What Hugging Face's library made of some thousand strings (tests/tokenizers/make_fixtures.py).
struct Expected {
  std::vector<std::string> strings;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::string> text;   // decoded
  std::vector<std::string> plain;  // decoded without special tokens
  std::vector<std::int32_t> hello;
};

Expected expected(const std::string& name) {
  const nlohmann::json document = nlohmann::json::parse(read_file(fixture("expected.json")));
  const std::string numbers = read_file(fixture("expected.bin"));
  Expected e;
  e.strings = document["strings"].get<std::vector<std::string>>();
  std::size_t offset = 0;
  for (const std::string kind : {"gpt2", "llama3", "sentencepiece"})
    for (const std::size_t count : document[kind]["counts"].get<std::vector<std::size_t>>()) {
      if (kind == name) {
        std::vector<std::uint16_t> ids(count);
        if (count > 0) std::memcpy(ids.data(), numbers.data() + offset, count * sizeof(std::uint16_t));
        e.ids.emplace_back(ids.begin(), ids.end());
      }
      offset += count * sizeof(std::uint16_t);
    }
  EXPECT_EQ(offset, numbers.size());
  for (auto& [key, texts] : {std::pair{"text", &e.text}, std::pair{"plain", &e.plain}}) {
    *texts = e.strings;
    for (const auto& [index, text] : document[name][key].items()) (*texts)[std::stoul(index)] = text;
  }
  e.hello = document[name]["hello"].get<std::vector<std::int32_t>>();
  return e;
}

class TokenizerFile : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerFile, testing::Values("gpt2", "llama3", "sentencepiece"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(TokenizerFile, AgreesWithTheLibrary) {
  const auto tokenizer = open_tokenizer(fixture(std::string(GetParam()) + ".json"));
  const Expected e = expected(GetParam());
  for (std::size_t i = 0; i < e.strings.size(); ++i) {
    ASSERT_EQ(tokenizer->encode(e.strings[i]), e.ids[i]) << e.strings[i];
    ASSERT_EQ(tokenizer->decode(e.ids[i]), e.text[i]);
    ASSERT_EQ(tokenizer->decode(e.ids[i], Specials::none), e.plain[i]);
  }
  EXPECT_EQ(tokenizer->encode("Hello", Specials::add), e.hello);
}

TEST_P(TokenizerFile, StreamsWhatItDecodes) {
  const auto tokenizer = open_tokenizer(fixture(std::string(GetParam()) + ".json"));
  const Expected e = expected(GetParam());
  for (std::size_t i = 0; i < e.strings.size(); ++i) {
    StreamDecoder stream(*tokenizer, Specials::add);
    std::string text;
    for (const std::int32_t id : e.ids[i]) {
      text += stream.push(id);
      ASSERT_EQ(valid_utf8(text), text.size());
    }
    text += stream.finish();
    ASSERT_EQ(text, e.text[i]);
  }
}

TEST_P(TokenizerFile, ManyThreadsAtOnce) {
  const auto tokenizer = open_tokenizer(fixture(std::string(GetParam()) + ".json"));
  const Expected e = expected(GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < e.strings.size(); i += 3)
        if (tokenizer->encode(e.strings[i]) != e.ids[i]) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, LinesCanBeEncodedApart) {
  for (const char* name : {"gpt2", "llama3", "sentencepiece"}) {
    const auto tokenizer = open_tokenizer(fixture(std::string(name) + ".json"));
    // NFC and a place for the first word: only the first of them promises it.
    EXPECT_EQ(tokenizer->cuts(), std::string(name) == "gpt2" ? Cuts::words : Cuts::none);
  }
  const auto tokenizer = open_tokenizer(fixture("gpt2.json"));
  const Expected e = expected("gpt2");
  for (std::size_t i = 0; i + 1 < e.strings.size(); ++i) {
    const std::string a = e.strings[i] + "x\n";
    const std::string b = "y" + e.strings[i + 1];
    std::vector<std::int32_t> apart = tokenizer->encode(a);
    tokenizer->encode(b, Specials::none, apart);
    ASSERT_EQ(tokenizer->encode(a + b), apart);
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  const auto gpt2 = open_tokenizer(fixture("gpt2.json"));
  EXPECT_EQ(gpt2->vocab(), 3000);
  EXPECT_EQ(gpt2->id_of("<|endoftext|>"), 0);
  EXPECT_EQ(gpt2->end_of_text(), 0);
  EXPECT_TRUE(gpt2->is_special(0));
  EXPECT_FALSE(gpt2->is_special(1));
  EXPECT_EQ(gpt2->token_of(0), "<|endoftext|>");
  EXPECT_EQ(gpt2->token_of(-1), std::nullopt);
  EXPECT_EQ(gpt2->token_of(3000), std::nullopt);
  EXPECT_EQ(gpt2->id_of("no such token"), std::nullopt);
  EXPECT_EQ(gpt2->decode(std::vector<std::int32_t>{-5, 0, 99999}), "<|endoftext|>");
  EXPECT_EQ(gpt2->json(), read_file(fixture("gpt2.json")));
  const auto llama3 = open_tokenizer(fixture("llama3.json"));
  EXPECT_EQ(llama3->end_of_text(), llama3->id_of("<|end_of_text|>"));
  const auto pieces = open_tokenizer(fixture("sentencepiece.json"));
  EXPECT_EQ(pieces->end_of_text(), 2);
}

TEST(Tokenizer, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = open_tokenizer(fixture("gpt2.json"));
  EXPECT_EQ(tokenizer->encode("a\xFF\xE2\x82z"), tokenizer->encode("a\xEF\xBF\xBD\xEF\xBF\xBDz"));
}

TEST(Tokenizer, LongWords) {
  // Beyond the cache, beyond the scan, and a whole text without a cut.
  const auto gpt2 = open_tokenizer(fixture("gpt2.json"));
  const auto pieces = open_tokenizer(fixture("sentencepiece.json"));
  for (const std::size_t n : {30, 31, 32, 33, 48, 49, 200, 100000}) {
    std::string text;
    while (text.size() < n) text += "thequickbrownfox";
    text.resize(n);
    EXPECT_EQ(gpt2->decode(gpt2->encode(text)), text);
    EXPECT_EQ(pieces->decode(pieces->encode(text)), text);
  }
}

TEST(ByteTokenizer, IsOneTokenForEachByte) {
  const auto bytes = open_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_EQ(bytes->encode("a\xFF"), (std::vector<std::int32_t>{97, 255}));
  EXPECT_EQ(bytes->decode(std::vector<std::int32_t>{97, 255, 256}), "a\xFF?");
  EXPECT_EQ(bytes->end_of_text(), std::nullopt);
  EXPECT_TRUE(bytes->json().empty());
  StreamDecoder stream(*bytes);
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.push(0xA9), "é");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, TheFirstWordAfterAPromptKeepsItsSpace) {
  const auto pieces = open_tokenizer(fixture("sentencepiece.json"));
  const std::vector<std::int32_t> prompt = pieces->encode("Hello", Specials::add);
  StreamDecoder stream(*pieces);
  stream.skip(prompt);
  std::string text;
  for (const std::int32_t id : pieces->encode("the end")) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), " the end");
}

TEST(Utf8, FindsWhatIsValid) {
  EXPECT_EQ(to_utf8("plain"), "plain");
  const std::pair<std::string, std::size_t> cases[] = {
      {"\xC0\x80", 0},  {"\xED\xA0\x80", 0},    {"\xF4\x90\x80\x80", 0},
      {"a\xE2\x82", 1}, {"\xE0\x9F\x80", 0},    {"\xF0\x8F\x80\x80", 0},
      {"é", 2},         {"\xF4\x8F\xBF\xBF", 4}};
  for (const auto& [text, valid] : cases) EXPECT_EQ(valid_utf8(text), valid);
  // One replacement for each maximal part, as in Unicode's own example.
  EXPECT_EQ(to_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                    "b\x80"
                    "c"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c");
  EXPECT_EQ(unfinished_utf8("a\xE2\x82"), 2U);
  EXPECT_EQ(unfinished_utf8("a\xED\xA0"), 0U);
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80\x80"), 0U);
}

}  // namespace
}  // namespace trireme::data
