#include "trireme/core/error.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

constexpr std::string_view kPageBeginning =
    "# Options\n"
    "\n"
    "Written by `trireme config --markdown` from `include/trireme/options.def`, which declares every option once; a "
    "test\n"
    "compares the two. A file has the keys in sections, the command line as `--section.key=value`, and the library as\n"
    "fields of `ModelConfig` ([model]), of the kinds of data in `include/trireme/data.h` ([data]: each has those that "
    "it "
    "needs),\n"
    "`TrainOptions` ([train], [output]; its fields `prune` and `distil` have [prune] and [distil]) and `Plan` "
    "([parallel],\n"
    "[memory], [runtime]). The command line has priority over the file, and the file over the default.\n";

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
  return result;
}

std::string values_of(const Key& key) {
  std::string names;
  for (const std::string& name : key.rule.choices) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
  return names.empty() ? expectation(key) : names;
}

}  // namespace

std::vector<KeyText> key_texts() {
  Config defaults;
  std::vector<KeyText> texts;
  for (const Key& key : keys_of(defaults)) texts.push_back({key.name, to_text(key), std::string(key.meaning)});
  return texts;
}

std::string reference_page(const models::Families& families) {
  Config defaults;
  std::string text(kPageBeginning);
  std::string section;
  for (const Key& key : keys_of(defaults, families)) {
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("\n## [{}]\n\n| key | default | values | meaning |\n|---|---|---|---|\n", section);
    }
    const std::string value = to_text(key);
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, value.empty() ? "" : cell(fmt::format("`{}`", value)),
                        cell(values_of(key)), cell(key.meaning));
  }
  return text;
}

}  // namespace trireme::train
