#include "trireme/cli/shell_texts.h"

#include <algorithm>
#include <cctype>

#include "trireme/core/error.h"
#include "trireme/core/version.h"
#include "trireme/train/config.h"

namespace trireme::cli {
namespace {

using CLI::CommandInfo;
using CLI::OptionInfo;

// Calls f(words, command) for the program and every command below it; `words` is "bench step".
template <class F>
void for_commands(const CommandInfo& command, const std::string& words, F&& f) {
  f(words, command);
  for (const CommandInfo& below : command.commands)
    for_commands(below, words.empty() ? below.name : words + " " + below.name, f);
}

std::string words_of(const CommandInfo& command) {
  std::vector<std::string> words;
  for (const CommandInfo& below : command.commands) words.push_back(below.name);
  for (const OptionInfo& option : command.options)
    if (option.name.starts_with("--")) words.push_back(option.name);
  return fmt::format("{}", fmt::join(words, " "));
}

std::string keys_as_options() {
  std::string text;
  for (const train::KeyText& key : train::key_texts()) text += (text.empty() ? "--" : " --") + key.name + "=";
  return text;
}

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "\\'" : c == '\\' ? "\\\\" : std::string(1, c);
  return result + "'";
}

// Text of a manual page: a line may not begin with a dot or a quote, and a dash is written so that it can be searched.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
    result += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
  }
  return result;
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "_-./:=,@%+";
  const bool plain = std::all_of(word.begin(), word.end(), [&](unsigned char c) {
    return c >= 128 || std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !word.empty()) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string keys_by_section() {
  std::string text, section;
  for (const train::KeyText& key : train::key_texts()) {
    const std::size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}  {:<10}", text.empty() ? "" : "\n", section);
    }
    text += " " + key.name.substr(dot + 1);
  }
  return text + "\n";
}

std::string bash_completion(const CommandInfo& program) {
  std::string cases;
  for_commands(program, "", [&](const std::string& words, const CommandInfo& command) {
    cases += fmt::format("    '{}') words='{}' ;;\n", words, words_of(command));
  });
  return "# bash completion of trireme; written by `trireme completion bash`.\n"
         "_trireme() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command= word words=\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    [[ $word == -* || $word == *[./=]* ]] && break\n"
         "    command+=${command:+ }$word\n"
         "  done\n"
         "  while :; do\n"
         "    case $command in\n" +
         cases +
         "    *' '*) command=${command% *}; continue ;;\n"
         "    esac\n"
         "    break\n"
         "  done\n"
         "  if [[ $current == --*.* ]]; then\n"
         "    words='" +
         keys_as_options() +
         "'\n"
         "    compopt -o nospace\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  ((${#COMPREPLY[@]})) || COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -F _trireme trireme\n";
}

std::string zsh_completion(const CommandInfo& program) {
  return "#compdef trireme\n"
         "# zsh completion of trireme; written by `trireme completion zsh`.\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_completion(program);
}

std::string fish_completion(const CommandInfo& program) {
  std::string text = "# fish completion of trireme; written by `trireme completion fish`.\n";
  for_commands(program, "", [&](const std::string& words, const CommandInfo& command) {
    const std::string last = words.substr(words.rfind(' ') == std::string::npos ? 0 : words.rfind(' ') + 1);
    const std::string when =
        words.empty() ? "__fish_use_subcommand" : fmt::format("__fish_seen_subcommand_from {}", last);
    for (const CommandInfo& below : command.commands)
      text += fmt::format("complete -c trireme -f -n '{}' -a {} -d {}\n", when, below.name, in_quotes(below.help));
    for (const OptionInfo& option : command.options)
      if (option.name.starts_with("--"))
        text += fmt::format("complete -c trireme -n '{}' -l {}{} -d {}\n", when, option.name.substr(2),
                            option.flag ? "" : " -r", in_quotes(option.help));
  });
  for (const train::KeyText& key : train::key_texts())
    text += fmt::format("complete -c trireme -l {} -r -d {}\n", key.name, in_quotes(key.meaning));
  return text;
}

std::string manual_page(const CommandInfo& program) {
  std::string text = fmt::format(".TH TRIREME 1 \"\" \"trireme {}\" \"User Commands\"\n.SH NAME\ntrireme \\- {}\n",
                                 version(), roff("train models that are too large, or too slow, for one device"));
  text += ".SH SYNOPSIS\n.B trireme\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fB\\-\\-section.key=value\\fR ...]\n";
  text += ".SH COMMANDS\n";
  for_commands(program, "", [&](const std::string& words, const CommandInfo& command) {
    if (words.empty()) return;
    text += fmt::format(".SS trireme {}\n{}.\n", roff(words), roff(command.help));
    for (const OptionInfo& option : command.options)
      if (option.name != "--help") text += fmt::format(".TP\n.B {}\n{}\n", roff(option.name), roff(option.help));
  });
  text +=
      ".SH CONFIGURATION\nEvery key can stand in a TOML file, as section and key, or on the command line as "
      "\\fB\\-\\-section.key=value\\fR.\n";
  for (const train::KeyText& key : train::key_texts())
    text += fmt::format(".TP\n.B {}\n{}{}\n", roff(key.name), roff(key.meaning),
                        key.value.empty() ? "" : roff(fmt::format(" (default {})", key.value)));
  text +=
      ".SH EXIT STATUS\n0: done. 1: the run failed. 2: the request was wrong. 130 and 143: stopped by a signal, with a "
      "checkpoint.\n";
  return text;
}

}  // namespace trireme::cli
