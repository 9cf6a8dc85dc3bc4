// The table of options (include/trireme/options.def), read here as text, and everything that names its keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

using Table = Program;
using Keys = std::set<std::string>;

std::string source_file(const char* path) {
  std::ifstream file(std::filesystem::path(source_dir()) / path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What the groups of a pattern match, joined by dots, wherever it matches.
Keys matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern, std::regex::ECMAScript | std::regex::multiline);
  Keys found;
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i)
    found.insert(i->size() > 2 ? (*i)[1].str() + "." + (*i)[2].str() : (*i)[1].str());
  return found;
}

Keys keys_of_the_table() {
  return matches(source_file("include/trireme/options.def"), R"(^TRI_(?:OPTION|CHOICE)\((\w+), (\w+),)");
}

// The keys of a TOML text; a table of names is a key itself.
Keys keys_of_toml(const std::string& text) {
  Keys keys;
  std::string section;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_search(line, found, std::regex(R"(^\[(\w+)\])")))
      section = found[1];
    else if (std::regex_search(line, found, std::regex(R"(^\[(\w+\.\w+)\])")))
      keys.insert(found[1]);
    else if (std::regex_search(line, found, std::regex(R"(^(\w+) = )")))
      keys.insert(section + "." + found[1].str());
  }
  return keys;
}

// The keys that the help of `train` lists, a line for each section.
Keys keys_of_help(const std::string& text) {
  const std::size_t begin = text.find("\nConfiguration keys, ");
  if (begin == std::string::npos) return {};
  const std::string list = text.substr(begin, text.find("\n\n", begin) - begin);
  Keys keys;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) continue;
    std::istringstream words(line);
    std::string section, key;
    for (words >> section; words >> key;) keys.insert(section + "." + key);
  }
  return keys;
}

std::vector<std::vector<std::string>> every_command(const std::string& bash_completion) {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& words : matches(bash_completion, R"(^    '([a-z ]*)'\) words=)")) {
    std::istringstream text(words);
    commands.emplace_back(std::istream_iterator<std::string>(text), std::istream_iterator<std::string>());
  }
  return commands;
}

TEST_F(Table, PagesAndHelpNameItsKeysAndNoOthers) {
  const Keys table = keys_of_the_table();
  ASSERT_GT(table.size(), 100U);
  EXPECT_EQ(matches(source_file("docs/options.md"), R"(^\| `(\w+\.\w+)` \|)"), table);
  EXPECT_EQ(keys_of_toml(done({"config"}).out), table);
  EXPECT_EQ(keys_of_help(done({"train", "--help"}).out), table);
  EXPECT_EQ(matches(done({"man"}).out, R"(^\.B ([a-z]+\.\w+)$)"), table);
  EXPECT_EQ(matches(done({"completion", "bash"}).out, R"([ ']--(\w+\.\w+)=)"), table);
  EXPECT_EQ(matches(done({"completion", "fish"}).out, R"(-l (\w+\.\w+) )"), table);
}

// What is written by hand, such as the examples of a command, and whatever a command's own options say.
TEST_F(Table, EveryKeyThatHelpMentionsIsOfTheTable) {
  const Keys table = keys_of_the_table();
  std::string sections;
  for (const std::string& key : table) {
    const std::string section = key.substr(0, key.find('.'));
    if (("|" + sections + "|").find("|" + section + "|") == std::string::npos)
      sections += (sections.empty() ? "" : "|") + section;
  }
  const std::string mention = fmt::format(R"((?:^|[^\w./-]|--)((?:{})\.[a-z_]+)(?![\w/]))", sections);
  const std::vector<std::vector<std::string>> commands = every_command(done({"completion", "bash"}).out);
  ASSERT_GT(commands.size(), 25U);
  std::size_t mentioned = 0;
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--help");
    const std::string help = done(command).out;
    for (const std::string& key : matches(help, mention.c_str())) {
      if (key.ends_with(".gguf") || key.ends_with(".bin")) continue;  // model.gguf, data.bin: files
      ++mentioned;
      EXPECT_TRUE(table.contains(key)) << fmt::format("trireme {}: {}", fmt::join(command, " "), key);
    }
    // A command that reads a configuration says where the keys are.
    if (help.find("\n  config TEXT") != std::string::npos) {
      EXPECT_NE(help.find("--section.key=value"), std::string::npos) << help;
    }
  }
  EXPECT_GT(mentioned, 20U);
}

}  // namespace
}  // namespace trireme::testing
