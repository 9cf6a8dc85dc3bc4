// The search for a model's shape as a person uses it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>

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

// Processes share the candidates; the result, the losses and the models are those of one.
TEST_F(SearchCommand, ProcessesFindWhatOneDoes) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
  const Finished one = done(into("one"));
  const Finished several = Running(folder(), into("several"), 3).wait();
  ASSERT_EQ(several.code, 0) << several.err;
  for (const char* line : {"best ", "given ", "total "})
    EXPECT_EQ(line_with(several.out, line), line_with(one.out, line)) << several.out;
  EXPECT_GT(lines("several/search.jsonl"), 0U);
  EXPECT_GT(lines("several/search.1.jsonl"), 0U);
  EXPECT_EQ(lines("several/search.jsonl") + lines("several/search.1.jsonl") + lines("several/search.2.jsonl"),
            lines("one/search.jsonl"));
  EXPECT_EQ(state("several/candidate-000", 8), state("one/candidate-000", 8));
  // Two of them stopped go on as one, and find the same.
  {
    Running cut(folder(), into("cut"), 2);
    ASSERT_TRUE(cut.wait_until([&] { return exists("cut/search.jsonl") || exists("cut/search.1.jsonl"); }));
    cut.signal(SIGTERM);
    cut.wait();
  }
  EXPECT_EQ(line_with(done(into("cut")).out, "best "), line_with(one.out, "best "));
  // An error is said once, by the first that has it.
  const Finished wrong = Running(folder(), into("one", {"--train.lr=0.5"}), 2).wait();
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err.find("error:"), wrong.err.rfind("error:")) << wrong.err;
}

// A token's time is predicted from measurements made here. How near it comes depends on what else the machine does:
// bench/compare_search.py asks for 15% on a quiet one.
TEST_F(SearchCommand, DecodeTimeIsPredictedFromMeasurements) {
  const std::vector<std::string> search = {
      "search", "tiny.toml",    "--budget", "decode",        "--out", "decode",          "--rungs",
      "1",      "--candidates", "2",        "--generations", "0",     "--train.steps=1", "--runtime.threads=1"};
  const Finished f = done(search);
  const std::regex measured(R"(measured +([0-9.]+) ms here, ([-+0-9.]+)% from the prediction)");
  std::smatch said;
  ASSERT_TRUE(std::regex_search(f.out, said, measured)) << f.out;
  EXPECT_GT(std::stod(said[1]), 0) << said[0];
  EXPECT_GT(std::stod(said[2]), -100) << said[0];
  // What was measured once is kept: the same search goes on.
  const std::string before = read("decode/decode.json");
  EXPECT_NE(done(search).out.find("total   0 steps"), std::string::npos);
  EXPECT_EQ(read("decode/decode.json"), before);
}

// A search that starts from a run reads it, and trains in folders of its own.
TEST_F(SearchCommand, ARunThatItStartsFromStaysAsItIs) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=4"});
  const auto contents = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder() / "run"))
      if (entry.is_regular_file()) {
        const std::string name = std::filesystem::relative(entry.path(), folder()).string();
        files[name] = read(name);
      }
    return files;
  };
  const auto before = contents();
  const std::vector<std::string> shapes = {"--budget", "params", "--candidates",  "3",
                                           "--rungs",  "3",      "--generations", "0"};
  std::vector<std::string> search = {"search", "run", "--out", "shapes", "--train.steps=8"};
  search.insert(search.end(), shapes.begin(), shapes.end());
  const Finished f = done(search);
  EXPECT_EQ(contents(), before);
  // What was said of the best is what its folder holds.
  std::smatch said;
  const std::regex best(R"(best +(\d+): .*loss ([0-9.]+))");
  ASSERT_TRUE(std::regex_search(f.out, said, best)) << f.out;
  const std::string candidate = fmt::format("shapes/candidate-{:03}", std::stoi(said[1]));
  const auto loss = nlohmann::json::parse(done({"eval", "--from", candidate, "--json"}).out)["loss"].get<double>();
  EXPECT_NEAR(loss, std::stod(said[2]), 1e-4);
  // And the command that is proposed trains it anew, with all that was given.
  EXPECT_NE(f.out.find(fmt::format("next    trireme train {} --output.dir=NAME", candidate)), std::string::npos)
      << f.out;
  done({"train", candidate, "--output.dir=again", "--dry-run"});
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
