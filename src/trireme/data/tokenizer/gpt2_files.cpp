#include "trireme/data/tokenizer/gpt2_files.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/json_node.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("{}: cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Json object_of(const fs::path& path) {
  Json object = parse_ordered_json(text_of(path));
  if (!object.is_object()) refuse("{}: no valid JSON object", path.string());
  return object;
}

// A file that may be absent.
Json optional_object(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path, unknown) ? object_of(path) : Json::object();
}

// "<|endoftext|>", or {"content": "<|endoftext|>", …}.
std::string content_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content")) return content_of(token["content"]);
  return {};
}

Json merges_of(const fs::path& path) {
  Json merges = Json::array();
  for (const std::string& line : split(text_of(path), '\n')) {
    const std::string_view merge = trim(line);
    if (merge.empty() || merge.starts_with("#version")) continue;
    merges.push_back(std::string(merge));
  }
  return merges;
}

// Names and ids of the tokens that are whole whatever text surrounds them.
std::map<std::int64_t, std::string> added_tokens(const fs::path& folder, const Json& vocab) {
  std::map<std::int64_t, std::string> added;
  const Json more = optional_object(folder / "added_tokens.json");
  for (const auto& [token, id] : more.items())
    if (id.is_number_integer()) added[id.get<std::int64_t>()] = token;
  std::set<std::string> special = {"<|endoftext|>"};
  const Json roles = optional_object(folder / "special_tokens_map.json");
  for (const auto& [role, token] : roles.items()) special.insert(content_of(token));
  for (const std::string& token : special)
    if (const auto found = vocab.find(token); found != vocab.end() && found->is_number_integer())
      added[found->get<std::int64_t>()] = token;
  return added;
}

}  // namespace

std::string gpt2_tokenizer_json(const fs::path& vocab) {
  const fs::path folder = vocab.parent_path();
  const nlohmann::json given = optional_object(folder / "tokenizer_config.json");
  const JsonNode settings(given, (folder / "tokenizer_config.json").string());
  const std::string kind = settings.optional_text("tokenizer_class").value_or("GPT2Tokenizer");
  if (kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast")
    refuse(
        "{}: tokenizer_class \"{}\" cannot be made from vocab.json and merges.txt; write a tokenizer.json with "
        "transformers: AutoTokenizer.from_pretrained(\"{}\").save_pretrained(…)",
        (folder / "tokenizer_config.json").string(), kind, folder.string());
  const bool prefix = settings.flag("add_prefix_space", false);
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", false}, {"use_regex", true}};
  Json root;
  root["version"] = "1.0";
  root["added_tokens"] = Json::array();
  Json words = object_of(vocab);
  for (const auto& [id, token] : added_tokens(folder, words))
    root["added_tokens"].push_back({{"id", id},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = bytes;
  root["post_processor"] = bytes;
  root["decoder"] = bytes;
  Json& model = root["model"];
  model["type"] = "BPE";
  model["unk_token"] = nullptr;
  model["fuse_unk"] = false;
  model["byte_fallback"] = false;
  model["vocab"] = std::move(words);
  model["merges"] = merges_of(folder / "merges.txt");
  return root.dump(2) + "\n";
}

}  // namespace trireme::data
