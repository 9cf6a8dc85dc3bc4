#include "trireme/data/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "trireme/data/tokenizer/known_patterns.h"

namespace trireme::data {
namespace {

using Json = nlohmann::ordered_json;

Json pre_tokenizer(const std::string& pattern) {
  const bool own = pattern == kKnownPatterns[0].name;  // the one that "ByteLevel" has built in
  Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  if (own) return bytes;
  Json split = {{"type", "Split"}, {"pattern", Json::object()}, {"behavior", "Isolated"}, {"invert", false}};
  for (const KnownPattern& known : kKnownPatterns)
    if (known.name == pattern) split["pattern"]["Regex"] = known.expression;
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

}  // namespace

std::string byte_level_json(const std::vector<std::string>& tokens,
                            const std::vector<std::pair<std::uint32_t, std::uint32_t>>& merges,
                            const TrainBpeOptions& options) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = Json::array();
  for (std::size_t i = 0; i < options.specials.size(); ++i)
    root["added_tokens"].push_back({{"id", i},
                                    {"content", options.specials[i]},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = pre_tokenizer(options.pattern);
  root["post_processor"] = nullptr;
  root["decoder"] = bytes;
  Json& model = root["model"];
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = nullptr;
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = false;
  model["byte_fallback"] = false;
  model["ignore_merges"] = false;
  // Put in place one by one: asking an ordered object for a key looks at all of them.
  Json::object_t vocab;
  vocab.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) vocab.Container::emplace_back(tokens[i], i);
  model["vocab"] = std::move(vocab);
  Json& list = model["merges"] = Json::array();
  for (const auto& [a, b] : merges) list.push_back(Json::array({tokens[a], tokens[b]}));
  return root.dump(2) + "\n";
}

}  // namespace trireme::data
