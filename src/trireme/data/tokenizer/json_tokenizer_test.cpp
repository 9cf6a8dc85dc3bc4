#include "trireme/data/tokenizer/json_tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/regex_syntax.h"
#include "trireme/data/tokenizer/unicode.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

Json small() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<end>", "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}})");
}

std::string refusal(const std::string& text) {
  try {
    const JsonTokenizer tokenizer(text, "t.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    return e.message();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

void expect_refused(const Json& document, std::initializer_list<const char*> parts) {
  const std::string message = refusal(document.dump());
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
}

TEST(JsonTokenizer, ReadsASmallFile) {
  const JsonTokenizer t(small().dump(), "t.json");
  EXPECT_EQ(t.encode("abc<end>ba"), (std::vector<std::int32_t>{2, 3, 4, 1, 0}));
  EXPECT_EQ(t.decode(std::vector<std::int32_t>{2, 3}), "ab c");  // no decoder: spaces between tokens
  EXPECT_EQ(t.vocab(), 5);
}

TEST(JsonTokenizer, RefusesMalformedFiles) {
  EXPECT_EQ(refusal(""), "t.json: no valid JSON (at byte 1)");
  EXPECT_EQ(refusal("\x7f\x45LF"), "t.json: no valid JSON (at byte 1)");
  EXPECT_NE(refusal("{\"model\": ").find("JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("object"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '[')).find("JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"model\": \"\xFF\"}").find("JSON"), std::string::npos);
  EXPECT_NE(refusal("{}").find("\"model\" is missing"), std::string::npos);
}

TEST(JsonTokenizer, RefusesWhatIsNotSupportedByName) {
  const auto with = [](const char* part, const char* type) {
    Json document = small();
    document[part] = {{"type", type}};
    return document;
  };
  expect_refused(with("normalizer", "Precompiled"), {"t.json.normalizer", "Precompiled", "supported: NFC"});
  expect_refused(with("pre_tokenizer", "UnicodeScripts"), {"t.json.pre_tokenizer", "UnicodeScripts", "ByteLevel"});
  expect_refused(with("post_processor", "Nothing"), {"t.json.post_processor", "Nothing", "TemplateProcessing"});
  expect_refused(with("decoder", "CTC"), {"t.json.decoder", "CTC", "ByteFallback"});
  expect_refused(with("model", "Unigram"), {"t.json.model", "Unigram", "BPE"});
}

TEST(JsonTokenizer, RefusesBadVocabularies) {
  const auto model = [](const char* key, const Json& value) {
    Json document = small();
    document["model"][key] = value;
    return document;
  };
  expect_refused(model("vocab", Json::array()), {"model.vocab", "object"});
  expect_refused(model("vocab", {{"a", -1}}), {"model.vocab[\"a\"]", "-1"});
  expect_refused(model("vocab", {{"a", 1.5}}), {"model.vocab", "1.5"});
  expect_refused(model("vocab", {{"a", 1ULL << 63}}), {"model.vocab", "whole number"});
  expect_refused(model("vocab", {{"a", 50000000}}), {"model.vocab", "50000000"});
  expect_refused(model("vocab", {{"a", 0}, {"b", 0}}), {"id 0 is both"});
  expect_refused(model("merges", {"a x"}), {"model.merges[0]", "\"x\" is not in the vocabulary"});
  expect_refused(model("merges", {"a c"}), {"\"ac\" is not in the vocabulary"});
  expect_refused(model("merges", {"a b c"}), {"model.merges[0]", "two tokens"});
  expect_refused(model("merges", {"ab"}), {"two tokens"});
  expect_refused(model("merges", {"a "}), {"empty token"});
  expect_refused(model("merges", {{"a", 1}}), {"model.merges"});
  expect_refused(model("merges", 3), {"model.merges", "list"});
  expect_refused(model("dropout", 0.1), {"model.dropout"});
  expect_refused(model("fuse_unk", "yes"), {"model.fuse_unk", "true or false"});
  Json other = small();
  other["added_tokens"][0]["content"] = "ab";
  expect_refused(other, {"added_tokens", "\"ab\" has id 4", "2"});
  other = small();
  other["added_tokens"][0]["id"] = 1ULL << 40;
  expect_refused(other, {"added_tokens[0].id"});
}

TEST(JsonTokenizer, RefusesEndlessNesting) {
  for (const auto& [part, key] : {std::pair{"normalizer", "normalizers"}, std::pair{"pre_tokenizer", "pretokenizers"},
                                  std::pair{"decoder", "decoders"}, std::pair{"post_processor", "processors"}}) {
    Json nested = {{"type", "Sequence"}, {key, Json::array()}};
    for (int i = 0; i < 1000; ++i) nested = {{"type", "Sequence"}, {key, Json::array({std::move(nested)})}};
    Json document = small();
    document[part] = std::move(nested);
    EXPECT_NE(refusal(document.dump()).find("nested too deep"), std::string::npos);
  }
}

TEST(JsonTokenizer, RefusesBadPatterns) {
  const auto split = [](const Json& pattern, const char* behavior = "Isolated") {
    Json document = small();
    document["pre_tokenizer"] = {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}};
    return document;
  };
  expect_refused(split({{"Regex", "(a"}}), {"pre_tokenizer.pattern", "not valid"});
  expect_refused(split({{"Regex", "[a[b]]"}}), {"a class inside a class"});
  expect_refused(split({{"Regex", "[a&&b]"}}), {"intersection"});
  expect_refused(split({{"Regex", "(?R)"}}), {"(?R)"});
  expect_refused(split({{"Regex", "a\\"}}), {"backslash"});
  expect_refused(split({{"Regex", "\\Q"}}), {"\\Q"});
  expect_refused(split({{"String", ""}}), {"must not be empty"});
  expect_refused(split(3), {"pattern"});
  expect_refused(split({{"String", "a"}}, "Sideways"), {"behavior", "Sideways", "MergedWithNext"});
}

TEST(JsonTokenizer, AnExpressionThatNeverEndsFails) {
  Json document = small();
  document["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}};
  const JsonTokenizer t(document.dump(), "t.json");
  EXPECT_THROW(t.encode(std::string(60, 'a') + "b"), Error);
}

TEST(JsonTokenizer, AnUnknownTokenThatIsNotThereFailsWhenNeeded) {
  Json document = small();
  document["model"]["unk_token"] = "<unk>";
  const JsonTokenizer t(document.dump(), "t.json");
  EXPECT_EQ(t.encode("ab"), (std::vector<std::int32_t>{2}));
  EXPECT_THROW(t.encode("x"), Error);
}

TEST(RegexSyntax, MeansTheSameToPcre2) {
  EXPECT_EQ(to_pcre2(R"(\s+(?!\S)|[^\s\p{L}])", "p"), R"(\p{White_Space}+(?!\P{White_Space})|[^\p{White_Space}\p{L}])");
  EXPECT_EQ(to_pcre2(R"(\p{N}{1,3}+)", "p"), R"((?:\p{N}{1,3})+)");
  EXPECT_EQ(to_pcre2(R"((?:ab){2}+c++)", "p"), R"((?:(?:ab){2})+c++)");
  EXPECT_EQ(to_pcre2(R"(a{,2}b{x})", "p"), R"(a{0,2}b\{x})");
  EXPECT_EQ(to_pcre2(R"(\u3042\x41\h\v)", "p"), R"(\x{3042}\x{41}[0-9a-fA-F]\x0B)");
}

// The classes that are written by hand, against the library's.
TEST(Unicode, ClassesAreThoseOfTheProperties) {
  const Regex word(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200C\u200D])", "word");
  const Regex space(R"(\p{White_Space})", "space");
  RegexScratch scratch;
  const auto matches = [&](const Regex& regex, const std::string& text) {
    bool found = false;
    regex.each(text, scratch, [&](std::size_t, std::size_t) { found = true; });
    return found;
  };
  const Regex assigned(R"([^\p{Cn}\p{Cs}\p{Co}])", "assigned");
  for (char32_t c = 1; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    if (!matches(assigned, text)) continue;
    ASSERT_EQ(is_word(c), matches(word, text)) << std::hex << static_cast<std::uint32_t>(c);
    ASSERT_EQ(is_white_space(c), matches(space, text)) << std::hex << static_cast<std::uint32_t>(c);
  }
}

}  // namespace
}  // namespace trireme::data
