#include "trireme/program/schedule/action.h"

#include <gtest/gtest.h>

#include "support/folder.h"
#include "trireme/core/error.h"

namespace trireme::program {
namespace {

using test::refusal;

std::string refusal(std::string_view text, const ActionNeeds& needs) {
  return refusal([&] { check_actions(parse_actions(text), needs); });
}

TEST(Action, TextReadsBack) {
  const std::string text = "F0 F1 F0.1 B0 W0 B12.3 U";
  EXPECT_EQ(to_text(parse_actions(text)), text);
  EXPECT_EQ(parse_actions("\n F0\tB0 \n"), (std::vector<Action>{{Action::Kind::forward}, {Action::Kind::backward}}));
  EXPECT_TRUE(parse_actions(" ").empty());
}

TEST(Action, WhatIsNoActionIsNamed) {
  for (const char* bad : {"X0", "F", "F-1", "F0.", "F0.x", "U0", "f0", "F0B0", "B 0"}) {
    const std::string message = refusal([&] { parse_actions(std::string("F0 ") + bad); });
    EXPECT_TRUE(message.find("is no action") != std::string::npos) << bad << ": " << message;
  }
  EXPECT_EQ(refusal([] { parse_actions("F0 G1"); }),
            "'G1' is no action: those are F0, B0 and W0 of a micro-batch, F0.1 of its chunk 1, and U");
}

TEST(Action, PlainOrderTakesEachMicroBatchToItsEnd) {
  EXPECT_EQ(to_text(plain_order({.micro_batches = 3})), "F0 B0 F1 B1 F2 B2 U");
  EXPECT_EQ(to_text(plain_order({.micro_batches = 2, .backward = false, .update = false})), "F0 F1");
}

TEST(Action, ValidOrdersPass) {
  const ActionNeeds two{.micro_batches = 2};
  for (const char* order :
       {"F0 B0 F1 B1 U", "F0 F1 B0 B1 U", "F0 F1 B1 B0 U", "F1 F0 B0 W0 B1 U", "F0 F1 B0 B1 W0 W1 U"})
    EXPECT_NO_THROW(check_actions(parse_actions(order), two)) << order;
}

TEST(Action, InvalidOrdersAreRefusedByTheirActions) {
  const ActionNeeds two{.micro_batches = 2};
  EXPECT_EQ(refusal("F0 B1 F1 B0 U", two), "B1 comes before F1");
  EXPECT_EQ(refusal("F0 F1 W0 B0 B1 U", two), "W0 comes before B0");
  EXPECT_EQ(refusal("F0 B0 U F1 B1", two), "U comes before F1");
  EXPECT_EQ(refusal("F0 B0 F1 B1", two), "U is missing");
  EXPECT_EQ(refusal("F0 F1 B0 U", two), "B1 is missing");
  EXPECT_EQ(refusal("F0 B0 B1 U", two), "F1 is missing");
  EXPECT_EQ(refusal("F0 F1 B0 B1 F1 U", two), "F1 comes twice");
  EXPECT_EQ(refusal("F0 F1 F2 B0 B1 U", two), "F2 has nothing to run: there are 2 micro-batches");
  EXPECT_EQ(refusal("F0 F1.1 B0 B1 U", two), "F1.1 is of chunk 1, and the rank has one chunk");
  EXPECT_EQ(refusal("F0 B0", {.backward = false, .update = false}), "B0 has nothing to run: there are no gradients");
  EXPECT_EQ(refusal("F0 B0 U", {.update = false}), "U has nothing to run: there is 1 micro-batch and no update");
}

}  // namespace
}  // namespace trireme::program
