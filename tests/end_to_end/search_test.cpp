// The search for a model's shape as a person uses it.
#include <gtest/gtest.h>

#include <csignal>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

using SearchCommand = Program;

const std::vector<std::string> kSearch = {"search",       "tiny.toml", "--budget",        "params",
                                          "--candidates", "3",         "--rungs",         "2",
                                          "--children",   "1",         "--train.steps=8", "--model.layers=2"};

std::vector<std::string> into(const char* folder, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = kSearch;
  arguments.insert(arguments.end(), {"--out", folder});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string line_with(const std::string& text, const std::string& start) {
  const std::size_t at = text.find("\n" + start);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST_F(SearchCommand, StoppedAndStartedAgainItEndsAsTheUndisturbedOne) {
  const Finished whole = done(into("whole"));
  EXPECT_NE(whole.out.find("loss after 8 steps"), std::string::npos) << whole.out;
  EXPECT_NE(line_with(whole.out, "given "), "");
  // Two candidates at a time give the same losses.
  const Finished two = done(into("two", {"--workers", "2"}));
  EXPECT_EQ(line_with(two.out, "best "), line_with(whole.out, "best "));
  {
    Running cut(folder(), into("cut"));
    ASSERT_TRUE(cut.wait_until([&] { return exists("cut/search.jsonl"); }));
    cut.signal(SIGTERM);
    EXPECT_EQ(cut.wait().code, 128 + SIGTERM);
  }
  const std::size_t known = lines("cut/search.jsonl");
  const Finished rest = done(into("cut"));
  EXPECT_EQ(line_with(rest.out, "best "), line_with(whole.out, "best "));
  EXPECT_GT(lines("cut/search.jsonl"), known);
  EXPECT_EQ(lines("cut/search.jsonl"), lines("whole/search.jsonl"));
  // Nothing is left to do.
  const Finished again = done(into("cut"));
  EXPECT_NE(again.out.find("total   0 steps"), std::string::npos) << again.out;
}

TEST_F(SearchCommand, WrongRequestsAreRefused) {
  EXPECT_NE(refused({"search", "tiny.toml", "--budget", "flops=3", "--out", "s"}).find("params"), std::string::npos);
  EXPECT_NE(refused({"search", "tiny.toml", "--budget", "params=3", "--out", "s"}).find("no shape"), std::string::npos);
  EXPECT_NE(refused({"search", "tiny.toml", "--budget", "params", "--data.holdout=0", "--out", "t"}).find("held-out"),
            std::string::npos);
  write("other/file.txt", "mine");
  EXPECT_NE(refused({"search", "tiny.toml", "--budget", "params", "--out", "other"}).find("something else"),
            std::string::npos);
  const std::vector<std::string> one = {"search", "tiny.toml",     "--budget", "params", "--candidates",
                                        "1",      "--generations", "0",        "--out",  "one"};
  done(one);
  std::vector<std::string> other = one;
  other.emplace_back("--train.lr=0.5");
  EXPECT_NE(refused(other).find("lr"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
