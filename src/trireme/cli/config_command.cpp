#include <algorithm>
#include <filesystem>

#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/train/compile.h"
#include "trireme/train/config.h"
#include "trireme/train/open_data.h"

namespace trireme::cli {
namespace {

struct ConfigArguments {
  std::string name;
  bool markdown = false;
  bool names = false;
};

// Keys whose value the model's family, or the text's tokenizer, decides: a comment says which it is.
std::string with_decided(const train::Config& config, const models::Families& families) {
  train::Config used = config;
  try {
    const bool text = config.data.tokens.empty() && !families.at(config.model.family).images;
    train::resolve_model(used, text ? data::open_tokenizer(config.data.tokenizer)->vocab() : 0, families);
  } catch (const Error&) {
    return train::to_toml(config);  // what is wrong is for the run to say
  }
  const std::vector<std::string> decided = train::differing_keys(config, used);
  std::string text;
  std::string section;
  for (const std::string& line : split(train::to_toml(config), '\n')) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const std::string key = section + "." + line.substr(0, line.find(' '));
    text += line;
    if (std::find(decided.begin(), decided.end(), key) != decided.end())
      text += fmt::format("  # {} here", train::value_text(used, key));
    text += '\n';
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string with_comment(std::string toml, const std::string& key, const std::string& comment) {
  const std::size_t section = toml.find("[" + key.substr(0, key.find('.')) + "]\n");
  const std::size_t line = toml.find("\n" + key.substr(key.find('.') + 1) + " = ", section);
  return toml.insert(toml.find('\n', line + 1), "  # " + comment);
}

// A configuration as a file with which `trireme train` does the same: what was not asked for is not in it, and what the
// data decide is.
std::string as_file(train::Config config, const models::Families& families) {
  if (!config.init.from.empty() && !config.is_given("data.text")) config.data.text.clear();
  std::vector<std::string> decided;
  if (families.at(config.model.family).images && config.data.images != "synthetic")
    for (const char* key : {"model.image", "model.channels", "model.classes"})
      if (!config.is_given(key)) decided.emplace_back(key);
  if (!decided.empty()) train::open_data(config, families);
  std::string toml = with_decided(config, families);
  for (const std::string& key : decided) toml = with_comment(std::move(toml), key, "of the files of data.images");
  return toml;
}

// What `trireme train` would run with, given the same words; without any, every key and what it means.
int show(const Context& context, const ConfigArguments& a) {
  const models::Families& families = context.registry->models;
  const std::string& name = a.name;
  if (a.markdown || a.names) {
    fmt::print("{}", a.markdown ? train::reference_page(families) : train::names_page());
    return 0;
  }
  std::error_code unknown;
  if (!context.overrides.empty() || std::filesystem::exists(name, unknown)) {
    fmt::print("{}",
               as_file(train::load_config(name.empty() ? "quickstart" : name, context.overrides, families), families));
    return 0;
  }
  if (name.empty()) {
    fmt::print("{}\n# Built-in configurations, printed by `trireme config NAME`:\n", train::describe_config(families));
    for (const train::Builtin& b : train::builtin_configs()) fmt::print("#   {:<18} {}\n", b.name, b.summary);
    return 0;
  }
  std::vector<std::string> names;
  for (const train::Builtin& b : train::builtin_configs()) {
    if (b.name == name) {
      fmt::print("{}", b.toml);
      return 0;
    }
    names.emplace_back(b.name);
  }
  const auto near = nearest(name, names);
  refuse("there is no built-in configuration '{}'; {}", name,
         near ? "did you mean '" + *near + "'?" : fmt::format("there are {}", fmt::join(names, ", ")));
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* command =
      app.add_subcommand("config", "Every key with its default and meaning, or the configuration a command line gives");
  command->add_option("name", arguments->name, "A built-in configuration, a TOML file or a run folder");
  command->add_flag("--markdown", arguments->markdown, "Every key as the page docs/options.md");
  command->add_flag("--names", arguments->names, "What other systems call the keys: the page docs/names.md");
  command->footer(
      "\nExamples:\n"
      "  trireme config | less\n"
      "  trireme config quickstart > my.toml && trireme train my.toml\n"
      "  trireme config my.toml --train.lr=3e-4             what `trireme train` would run with\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return show(context, *arguments); }; });
}

}  // namespace trireme::cli
