// The README's claims: each has a test, by a name that exists.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

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

// Why a name of the table is dead, or stands at the wrong place; empty: neither.
std::string what_is_wrong(const std::string& name, const std::string& where, const std::set<std::string>& tests,
                          const std::string& cmake) {
  if (name.find('/') != std::string::npos) return fs::exists(kSource / name) ? "" : "there is no such file";
  if (tests.contains(name)) return where == "default" ? "" : "a test of the default set is listed as " + where;
  if (cmake.find("NAME " + name + "\n") == std::string::npos && cmake.find("NAME " + name + " ") == std::string::npos)
    return "there is no such test";
  const std::size_t properties = cmake.find("set_tests_properties(" + name + " ");
  if (properties == std::string::npos) return "it has no labels";
  const bool slow =
      cmake.substr(properties, cmake.find(')', properties) - properties).find("slow") != std::string::npos;
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
  const std::string cmake = text_of(kSource / "tests/CMakeLists.txt");
  const auto rows = table_behind(text_of(kSource / "CONTRIBUTING.md"), "## Claims and their tests");
  ASSERT_GT(rows.size(), 10U);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 3U) << row.front();
    EXPECT_TRUE(row[2] == "default" || row[2] == "slow" || row[2] == "GPU") << row.front() << ": " << row[2];
    const std::vector<std::string> names = quoted(row[1]);
    EXPECT_FALSE(names.empty()) << row.front();
    for (const std::string& name : names) EXPECT_EQ(what_is_wrong(name, row[2], tests, cmake), "") << name;
  }
  // What the check is worth.
  EXPECT_NE(what_is_wrong("Reference.NoSuchTest", "default", tests, cmake), "");
  EXPECT_NE(what_is_wrong("laws.no_such_law", "slow", tests, cmake), "");
  EXPECT_NE(what_is_wrong("crash.fifty_kills", "default", tests, cmake), "");
  EXPECT_NE(what_is_wrong("tests/gpu/nothing.py", "GPU", tests, cmake), "");
}

TEST(Claims, EveryRowOfTheReadmeHasTests) {
  std::set<std::string> shown;
  for (const auto& row : table_behind(text_of(kSource / "CONTRIBUTING.md"), "## Claims and their tests"))
    shown.insert(row.front());
  const auto rows = table_behind(text_of(kSource / "README.md"), "## What it does today");
  ASSERT_GT(rows.size(), 10U);
  for (const auto& row : rows) EXPECT_TRUE(shown.contains(row.front())) << row.front();
}

// What `./test` would install on a machine that has nothing, as it says before it does.
std::string packages_for(const std::string& flags) {
  const fs::path tools = fs::path(::testing::TempDir()) / "claims-tools";
  fs::create_directories(tools);
  for (const char* name : {"dpkg-query", "apt-get", "sudo"}) {
    std::ofstream(tools / name) << "#!/bin/sh\nexit 1\n";
    fs::permissions(tools / name, fs::perms::owner_all);
  }
  const std::string command = "PATH=" + tools.string() + ":$PATH TRIREME_NO_INSTALL= bash " +
                              (kSource / "test").string() + " " + flags + " < /dev/null 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_NE(pipe, nullptr);
  if (pipe != nullptr) {
    EXPECT_NE(pclose(pipe), 0) << "it went on without its packages";
  }
  fs::remove_all(tools);
  return text;
}

TEST(Claims, TheSlowTestsInstallWhatTheyNeed) {
  const std::string fast = packages_for("");
  EXPECT_NE(fast.find("clang-format-14"), std::string::npos) << fast;
  EXPECT_EQ(fast.find("libclang-rt-14-dev"), std::string::npos) << fast;
  const std::string slow = packages_for("--slow");
  EXPECT_NE(slow.find("clang-format-14"), std::string::npos) << slow;
  EXPECT_NE(slow.find("libclang-rt-14-dev"), std::string::npos) << slow;
}

}  // namespace
}  // namespace trireme::testing
