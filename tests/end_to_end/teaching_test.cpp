// What teaches: the walkthrough's listings, the lessons, completions and the manual page.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "end_to_end/listings.h"
#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

using Teaching = Program;

// Where bytes lie depends on the workspaces of this machine's kernels.
std::string without_places(const std::string& text) {
  static const std::regex workspace(R"( \[workspace [0-9]+ B@[0-9]+\])");
  static const std::regex place(R"(@[0-9]+)");
  static const std::regex arena(R"(arena [0-9,]+ B)");
  static const std::regex memory(R"(memory  [0-9,]+ B)");
  static const std::regex note(R"(note    [^\n]*\n)");
  std::string result = std::regex_replace(text, workspace, "");
  result = std::regex_replace(result, place, "@…");
  result = std::regex_replace(result, memory, "memory  … B");
  result = std::regex_replace(result, note, "");
  return std::regex_replace(result, arena, "arena … B");
}

TEST_F(Teaching, TheWalkthroughShowsWhatTheCommandsPrint) {
  const std::vector<Listing> all = listings("walkthrough.md");
  EXPECT_GE(all.size(), 8U);
  for (const Listing& listing : all)
    EXPECT_EQ(without_places(done(listing.arguments).out), without_places(listing.output))
        << fmt::format("{}", fmt::join(listing.arguments, " "))
        << "\nwrite it anew: scripts/update_listings docs/walkthrough.md";
}

// The README's listings have parts left out ("…"), and workspaces and times of the machine that they were printed on:
// the rows compared are those that every machine prints.
TEST_F(Teaching, TheReadmeShowsTheMemoryPlanThatTheCommandPrints) {
  const std::vector<Listing> all = listings("../README.md");
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].arguments.at(0), "memory");
  const auto compared = [](const std::string& text) {
    static const std::regex row(R"(\n(weights|gradients|optimizer|activations|staging) +([0-9,]+) )");
    static const std::regex count(R"(^([0-9,]+) parameters;[^\n]* of ([0-9]+)\n)");
    std::vector<std::string> found;
    for (const std::regex& what : {count, row})
      for (std::sregex_iterator i(text.begin(), text.end(), what), end; i != end; ++i)
        found.push_back(fmt::format("{} {}", (*i)[1].str(), (*i)[2].str()));
    return found;
  };
  EXPECT_EQ(compared(all[0].output).size(), 6U) << all[0].output;
  EXPECT_EQ(compared(all[0].output), compared(done(all[0].arguments).out));
}

TEST_F(Teaching, EveryLessonRunsAndItsLawsAreExact) {
  const std::string list = done({"lesson"}).out;
  std::istringstream lines(list);
  int lessons = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string start = "  trireme lesson ";
    if (!line.starts_with(start)) continue;
    const std::string name = line.substr(start.size(), line.find(' ', start.size()) - start.size());
    const Finished f = done({"lesson", name});
    ++lessons;
    EXPECT_NE(f.out.find("\nlaw     "), std::string::npos) << f.out;
    EXPECT_NE(f.out.find("✓"), std::string::npos) << f.out;
    EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
    const std::size_t page = f.out.find("\nread    ");
    ASSERT_NE(page, std::string::npos) << f.out;
    const std::string path = f.out.substr(page + 9, f.out.find('\n', page + 9) - page - 9);
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(source_dir()) / path)) << path;
  }
  EXPECT_EQ(lessons, 10);
  EXPECT_NE(refused({"lesson", "recompuation"}).find("did you mean 'recomputation'?"), std::string::npos);
}

// Every command and key is in the scripts and the manual page.
TEST_F(Teaching, CompletionsAndTheManualPageKnowEverything) {
  const std::string bash = done({"completion", "bash"}).out;
  const std::string fish = done({"completion", "fish"}).out;
  const std::string man = done({"man"}).out;
  for (const char* word : {"train", "simulate", "lesson", "--dry-run", "--parallel.mesh"}) {
    EXPECT_NE(bash.find(word), std::string::npos) << word;
    EXPECT_NE(fish.find(word[0] == '-' ? std::string(word).substr(2) : word), std::string::npos) << word;
  }
  for (const char* part : {".SS trireme bench step\n", ".B \\-\\-dump\\-passes\n", ".B parallel.mesh\n"})
    EXPECT_NE(man.find(part), std::string::npos) << part;
  EXPECT_NE(refused({"completion", "tcsh"}).find("tcsh"), std::string::npos);
}

// `inspect --after PASS` names the passes that ran where there is none of that name.
TEST_F(Teaching, InspectShowsWhatAPassLeft) {
  const std::string model = done({"inspect", "graph", "two-layer", "--after", "model", "--graph", "micro"}).out;
  EXPECT_EQ(model.find("grad"), std::string::npos) << model;
  const std::string autodiff = done({"inspect", "graph", "two-layer", "--after", "autodiff", "--graph", "micro"}).out;
  EXPECT_NE(autodiff.find("phase=weight_gradient"), std::string::npos) << autodiff;
  EXPECT_NE(done({"inspect", "program", "two-layer", "--after", "lower"}).out.find("not placed"), std::string::npos);
  EXPECT_NE(refused({"inspect", "graph", "two-layer", "--after", "autodif"}).find("did you mean autodiff?"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
