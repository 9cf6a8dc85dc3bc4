#include "trireme/core/toml_depth.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::string refusal(const std::string& text) {
  try {
    check_toml_depth(text, "d.toml");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    return e.message();
  }
  return "";
}

TEST(TomlDepth, DeepKeysAndValuesAreRefused) {
  for (const std::string& deep :
       {"[" + repeated("a.", 30000) + "a]", "[[" + repeated("a.", 30000) + "a]]", repeated("a.", 30000) + "a = 1",
        repeated("a . ", 33) + "a = 1", repeated("\"a\".", 33) + "a = 1", "x = { " + repeated("a.", 33) + "a = 1 }"})
    EXPECT_EQ(refusal("# first\n" + deep + "\n"),
              "d.toml:2: a key of more parts than 32, which nothing that is read here needs")
        << deep.substr(0, 20);
  for (const std::string& deep : {"a = " + repeated("[", 200), "a = " + repeated("{a=", 200)})
    EXPECT_EQ(refusal(deep),
              "d.toml:1: more lists and tables within each other than 32, which nothing that is read here needs");
}

TEST(TomlDepth, WhatOnlyLooksDeepPasses) {
  const std::string dots(100, '.');
  const std::string lists = repeated("[", 100);
  for (const std::string& text :
       {"a = \"" + dots + "\\\"" + dots + "\"", "a = '" + dots + "\\'", "# " + dots + lists,
        "a = \"\"\"" + dots + "\n" + lists + "\"\"\"\"", "a = '''" + dots + "\n''\n" + lists + "'''",
        "a = [" + repeated("1.5, ", 100) + "]", repeated("a.b = 1.5\n", 100), repeated("[[a.b]]\n", 100),
        std::string("a.b.c = [[[[[1.5]]]]]")})
    EXPECT_EQ(refusal(text), "") << text;
}

// A string that no quote ends, ends with its line, as it does for a parser.
TEST(TomlDepth, NothingHidesBehindAQuote) {
  EXPECT_NE(refusal("a = \"\"\"x\"\"\"\"\n[" + repeated("a.", 100) + "a]"), "");
  EXPECT_NE(refusal("a = '\n[" + repeated("a.", 100) + "a]"), "");
  EXPECT_NE(refusal("a = \"\\\\\"\n[" + repeated("a.", 100) + "a]"), "");
  EXPECT_EQ(refusal("a = \""), "");
  EXPECT_EQ(refusal("a = \"\\"), "");
}

}  // namespace
}  // namespace trireme
