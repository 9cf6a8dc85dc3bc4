#include "trireme/core/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace trireme {
namespace {

TEST(Json, IsReadFromTextAndFromAStream) {
  const nlohmann::json text = parse_json(R"({"step": 3, "loss": 1.5})");
  EXPECT_EQ(text["step"], 3);
  EXPECT_EQ(text["loss"], 1.5);
  std::istringstream in("[1, 2]\n");
  EXPECT_EQ(parse_json(in), nlohmann::json({1, 2}));
}

TEST(Json, WhatIsNotValidIsDiscarded) {
  for (const char* bad : {"", "{", "[1, 2", "[1] 2", "nothing", "{\"a\": \xff}"}) {
    EXPECT_TRUE(parse_json(bad).is_discarded()) << bad;
    EXPECT_TRUE(parse_ordered_json(bad).is_discarded()) << bad;
  }
  std::istringstream empty;
  EXPECT_TRUE(parse_json(empty).is_discarded());
}

TEST(Json, OrderedMembersStayInTheirOrder) {
  EXPECT_EQ(parse_ordered_json(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace trireme
