// The README's claims: each has a test, by a name that exists. So have the recipes for what is added.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "support/source_dir.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = source_dir();

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The rows of the first table behind a heading, cells trimmed; without its head.
std::vector<std::vector<std::string>> table_behind(const std::string& text, const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  const std::size_t begin = text.find("\n" + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  std::istringstream in(text.substr(std::min(begin, text.size())));
  bool body = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("|---")) {
      body = true;
    } else if (line.starts_with("|") && body) {
      std::vector<std::string> cells;
      for (const std::string& cell : split(line.substr(1, line.rfind('|') - 1), '|')) cells.emplace_back(trim(cell));
      rows.push_back(cells);
    } else if (body) {
      break;
    }
  }
  return rows;
}

// "Suite.Name" of every test in the sources.
std::set<std::string> tests_in_sources() {
  std::set<std::string> names;
  const std::regex test(R"(\bTEST(_F|_P)?\(([A-Za-z0-9]+),\s*([A-Za-z0-9]+)\))");
  for (const char* folder : {"src", "tests"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / folder)) {
      if (!entry.path().string().ends_with("_test.cpp")) continue;
      const std::string text = text_of(entry.path());
      for (std::sregex_iterator i(text.begin(), text.end(), test), end; i != end; ++i)
        names.insert((*i)[2].str() + "." + (*i)[3].str());
    }
  return names;
}

// Where the files of a table are run: by a test, by the tests of GPUs, or by nobody but a person.
struct Callers {
  std::string cmake;      // tests/CMakeLists.txt
  std::string check_gpu;  // scripts/check_gpu
};

// Why there is no such command of the program, with such flags and files; empty: there is.
std::string what_is_wrong_with_command(const std::string& command) {
  std::string sources;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "src/trireme/cli"))
    if (entry.path().extension() == ".cpp") sources += text_of(entry.path());
  const std::vector<std::string> words = split(command, ' ');
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool file = word.find('/') != std::string::npos;
    if (file && !fs::exists(kSource / word)) return "there is no file " + word;
    if (file) continue;
    const std::regex declared((word.starts_with("--") ? "" : "add_subcommand\\(\\s*") + ("\"" + word + "\""));
    if (!std::regex_search(sources, declared)) return "there is no " + word;
  }
  return "";
}

// Why a name of the table is dead, or stands at the wrong place; empty: neither.
std::string what_is_wrong(const std::string& name, const std::string& where, const std::set<std::string>& tests,
                          const Callers& callers) {
  const std::string& cmake = callers.cmake;
  if (name.starts_with("trireme "))
    return where == "by hand" ? what_is_wrong_with_command(name) : "a command is listed as " + where;
  if (name.find('/') != std::string::npos) {
    if (!fs::exists(kSource / name)) return "there is no such file";
    const std::string in_tests = name.starts_with("tests/") ? name.substr(std::string("tests/").size()) : name;
    if (cmake.find(in_tests) != std::string::npos) return "a test runs it: the name of that belongs here";
    const std::string runs = callers.check_gpu.find(name) != std::string::npos ? "GPU" : "by hand";
    return where == runs ? "" : "it is run " + runs + ", and listed as " + where;
  }
  if (tests.contains(name)) return where == "default" ? "" : "a test of the default set is listed as " + where;
  if (cmake.find("NAME " + name + "\n") == std::string::npos && cmake.find("NAME " + name + " ") == std::string::npos)
    return "there is no such test";
  const std::size_t properties = cmake.find("set_tests_properties(" + name + " ");
  if (properties == std::string::npos) return "it has no labels";
  const bool slow =
      cmake.substr(properties, cmake.find(')', properties) - properties).find("slow") != std::string::npos;
  if (where != "slow" && where != "default") return "a test is listed as " + where;
  return slow == (where == "slow") ? "" : slow ? "it is in the slow set" : "it is not in the slow set";
}

std::vector<std::string> quoted(const std::string& cell) {
  std::vector<std::string> names;
  const std::vector<std::string> parts = split(cell, '`');
  for (std::size_t i = 1; i < parts.size(); i += 2) names.push_back(parts[i]);
  return names;
}

TEST(Claims, EveryNameIsThatOfATest) {
  const std::set<std::string> tests = tests_in_sources();
  const Callers callers = {text_of(kSource / "tests/CMakeLists.txt"), text_of(kSource / "scripts/check_gpu")};
  const auto rows = table_behind(text_of(kSource / "CONTRIBUTING.md"), "## Claims and their tests");
  ASSERT_GT(rows.size(), 10U);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 4U) << row.front();
    EXPECT_TRUE(row[2] == "default" || row[2] == "slow" || row[2] == "GPU" || row[2] == "by hand")
        << row.front() << ": " << row[2];
    const std::vector<std::string> names = quoted(row[1]);
    EXPECT_FALSE(names.empty()) << row.front();
    for (const std::string& name : names) EXPECT_EQ(what_is_wrong(name, row[2], tests, callers), "") << name;
  }
  // What the check is worth.
  EXPECT_NE(what_is_wrong("Reference.NoSuchTest", "default", tests, callers), "");
  EXPECT_NE(what_is_wrong("laws.no_such_law", "slow", tests, callers), "");
  EXPECT_NE(what_is_wrong("crash.fifty_kills", "default", tests, callers), "");
  EXPECT_NE(what_is_wrong("tests/gpu/nothing.py", "GPU", tests, callers), "");
  EXPECT_NE(what_is_wrong("bench/compare_compression.py", "default", tests, callers), "");
  EXPECT_NE(what_is_wrong("bench/compare_gpu.py", "GPU", tests, callers), "");
  EXPECT_NE(what_is_wrong("tests/gpu/repeat.py", "by hand", tests, callers), "");
  EXPECT_NE(what_is_wrong("tests/tokenizers/compare.py", "by hand", tests, callers), "");
  EXPECT_NE(what_is_wrong("crash.fifty_kills", "by hand", tests, callers), "");
  EXPECT_EQ(what_is_wrong("trireme bench plans", "by hand", tests, callers), "");
  EXPECT_NE(what_is_wrong("trireme bench plans", "default", tests, callers), "");
  EXPECT_NE(what_is_wrong("trireme bench plants", "by hand", tests, callers), "");
  EXPECT_NE(what_is_wrong("trireme simulate --publish bench/published_runs.csv", "by hand", tests, callers), "");
  EXPECT_NE(what_is_wrong("trireme simulate --published bench/runs.csv", "by hand", tests, callers), "");
}

// The figures of a cell, apart from code and links: percentages, and numbers of more than one digit.
std::set<std::string> figures_of(std::string cell) {
  cell = std::regex_replace(cell, std::regex(R"(`[^`]*`|\]\([^)]*\))"), "");
  std::set<std::string> figures;
  const std::regex figure(R"((^|[^\w./-])(\d+e-\d+|\d[\d.,/]*\d%?|\d%))");
  for (std::sregex_iterator i(cell.begin(), cell.end(), figure), end; i != end; ++i) figures.insert((*i)[2].str());
  return figures;
}

// Figures of the README that the table does not have for their row, and the other way round, as "row: figure". A row of
// the table belongs to the README's of the longest name that it begins with, or else to one with the same first words.
std::vector<std::string> unshown_figures(const std::vector<std::vector<std::string>>& readme,
                                         const std::vector<std::vector<std::string>>& table) {
  std::map<std::string, std::set<std::string>> claimed;
  std::map<std::string, std::set<std::string>> shown;
  for (const auto& row : readme) claimed[row.at(0)] = figures_of(row.at(1));
  for (const auto& row : table) {
    std::string owner;
    const auto head = [](const std::string& name) { return name.substr(0, name.find(',')); };
    for (const auto& [name, figures] : claimed) {
      const bool whole = row[0].starts_with(name);
      if ((whole && name.size() >= owner.size()) || (owner.empty() && head(row[0]) == head(name))) owner = name;
    }
    shown[owner].merge(figures_of(row.at(3)));
  }
  std::vector<std::string> missing;
  for (const auto& [name, figures] : claimed)
    for (const std::string& figure : figures)
      if (!shown[name].contains(figure)) missing.push_back(name + ": " + figure + " is not in the table");
  for (const auto& [name, figures] : shown)
    for (const std::string& figure : figures)
      if (!claimed[name].contains(figure)) missing.push_back(name + ": " + figure + " is not in the README");
  return missing;
}

TEST(Claims, EveryRowAndFigureOfTheReadmeHasTests) {
  const auto table = table_behind(text_of(kSource / "CONTRIBUTING.md"), "## Claims and their tests");
  std::set<std::string> shown;
  for (const auto& row : table) shown.insert(row.front());
  auto rows = table_behind(text_of(kSource / "README.md"), "## What it does today");
  ASSERT_GT(rows.size(), 10U);
  for (const auto& row : rows) EXPECT_TRUE(shown.contains(row.front())) << row.front();
  EXPECT_EQ(fmt::format("{}", fmt::join(unshown_figures(rows, table), "\n")), "");
  // What the check is worth.
  rows.back()[1] += " twice as fast as others, and 99.5% of the peak";
  EXPECT_EQ(unshown_figures(rows, table), std::vector<std::string>{rows.back()[0] + ": 99.5% is not in the table"});
}

// What `./test` says that it would install, before it does, where `tools` stand in for some programs.
std::string said_by_test(const std::string& flags, const std::vector<std::pair<std::string, std::string>>& tools) {
  const fs::path folder = fs::path(::testing::TempDir()) / "claims-tools";
  fs::create_directories(folder);
  for (const auto& [name, script] : tools) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  const std::string command = "PATH=" + folder.string() +
                              ":$PATH TRIREME_NO_INSTALL= TRIREME_PYTHON=" + (folder / "python").string() + " bash " +
                              (kSource / "test").string() + " " + flags + " < /dev/null 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_NE(pipe, nullptr);
  if (pipe != nullptr) {
    EXPECT_NE(pclose(pipe), 0) << "it went on without its packages";
  }
  fs::remove_all(folder);
  return text;
}

TEST(Claims, TheSlowTestsInstallWhatTheyNeed) {
  const std::vector<std::pair<std::string, std::string>> nothing = {
      {"dpkg-query", "exit 1"}, {"apt-get", "exit 1"}, {"sudo", "exit 1"}};
  const std::string fast = said_by_test("", nothing);
  EXPECT_NE(fast.find("clang-format-14"), std::string::npos) << fast;
  EXPECT_EQ(fast.find("libclang-rt-14-dev"), std::string::npos) << fast;
  const std::string slow = said_by_test("--slow", nothing);
  EXPECT_NE(slow.find("clang-format-14"), std::string::npos) << slow;
  EXPECT_NE(slow.find("libclang-rt-14-dev"), std::string::npos) << slow;
  // All packages of the system are there, and none of Python's.
  const std::string python =
      said_by_test("--slow", {{"dpkg-query", "shift 2; for p in \"$@\"; do echo \"ii $p\"; done"},
                              {"apt-get", "exit 1"},
                              {"python3", "exit 1"}});
  for (const char* package : {"gguf", "tokenizers", "transformers", "torch", "xllamacpp"})
    EXPECT_NE(python.find(package), std::string::npos) << package << "\n" << python;
}

// As GoogleTest reads one pattern of a filter: "*" is any text.
bool matches(const std::string& pattern, const std::string& name) {
  std::string expression = std::regex_replace(pattern, std::regex(R"([.+()\[\]{}^$|\\])"), R"(\$&)");
  expression = std::regex_replace(expression, std::regex(R"(\*)"), ".*");
  return std::regex_match(name, std::regex(expression));
}

// What a page names that is not there: files, in code of a line or in a heading, and tests that CTest or a program of
// tests is asked for.
std::vector<std::string> names_of_nothing(const std::string& page, const std::set<std::string>& files,
                                          const std::set<std::string>& tests) {
  std::vector<std::string> missing;
  const auto each = [&page](const char* expression, const auto& look) {
    const std::regex form(expression);
    for (std::sregex_iterator i(page.begin(), page.end(), form), end; i != end; ++i) look((*i)[1].str());
  };
  const auto any_test = [&](const auto& holds) { return std::any_of(tests.begin(), tests.end(), holds); };
  // NAME.out.txt stands for files of whatever name.
  each(R"(`(?!NAME)([\w./]+\.(h|cpp|cu|cuh|def|md|txt|csv|toml|py))`)", [&](const std::string& file) {
    const auto ends = [&](const std::string& path) { return ("/" + path).ends_with("/" + file); };
    if (std::none_of(files.begin(), files.end(), ends)) missing.push_back(file);
  });
  each(R"(-R '?([^\s`']+))", [&](const std::string& expression) {
    const std::regex wanted(expression);
    if (!any_test([&](const std::string& name) { return std::regex_search(name, wanted); }))
      missing.push_back("-R " + expression);
  });
  each(R"(--gtest_filter='?([^\s`']+))", [&](const std::string& filter) {
    for (const std::string& pattern : split(filter.substr(0, filter.find('-')), ':'))
      if (!any_test([&](const std::string& name) { return matches(pattern, name); }))
        missing.push_back("--gtest_filter=" + pattern);
  });
  return missing;
}

TEST(Claims, RecipesNameFilesAndTestsThatAreThere) {
  const std::set<std::string> tests = tests_in_sources();
  std::set<std::string> files;
  for (const char* folder : {"src", "tests", "include", "docs", "bench"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / folder))
      files.insert(fs::relative(entry.path(), kSource).string());
  int recipes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "docs")) {
    if (!entry.path().filename().string().starts_with("adding_")) continue;
    ++recipes;
    EXPECT_EQ(names_of_nothing(text_of(entry.path()), files, tests), std::vector<std::string>{}) << entry.path();
  }
  EXPECT_GE(recipes, 3);
  // A pattern of nobody's is no green end.
  EXPECT_NE(text_of(kSource / "test").find("--no-tests=error"), std::string::npos);
  // What the check is worth.
  const std::vector<std::string> dead = {"nosuchop_test.cpp", "-R Nosuchop", "--gtest_filter=Nosuchop*"};
  EXPECT_EQ(names_of_nothing("## 4. The test: `nosuchop_test.cpp`\n`./test -R Nosuchop`, `ops_test "
                             "--gtest_filter='Activation*:Nosuchop*'`; `ops/all.cpp`, `./test -R Activation`",
                             files, tests),
            dead);
}

}  // namespace
}  // namespace trireme::testing
