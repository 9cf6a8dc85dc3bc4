#include "trireme/data/tokenizer/vocabulary.h"

#include <nlohmann/json.hpp>

namespace trireme::data {

Vocabulary::Vocabulary(const JsonNode& node) {
  const nlohmann::json& object = node.value();
  if (!object.is_object()) node.refuse(fmt::format("must be an object of tokens and ids, is {}", object.type_name()));
  ids_.reserve(object.size());
  for (const auto& [token, id] : object.get_ref<const nlohmann::json::object_t&>()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxIds))
      JsonNode(id, fmt::format("{}[\"{}\"]", node.where(), token)).integer(0, kMaxIds - 1);
    add(token, static_cast<std::int32_t>(id.get<std::uint64_t>()), node);
  }
}

void Vocabulary::add(std::string token, std::int32_t id, const JsonNode& node) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= spellings_.size()) spellings_.resize(at + 1);
  const auto [found, fresh] = ids_.try_emplace(std::move(token), id);
  if (!fresh && found->second != id)
    node.refuse(fmt::format("token \"{}\" has id {} and id {}", found->first, found->second, id));
  if (spellings_[at] != nullptr && *spellings_[at] != found->first)
    node.refuse(fmt::format("id {} is both \"{}\" and \"{}\"", id, *spellings_[at], found->first));
  spellings_[at] = &found->first;
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::spelling(std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return id >= 0 && at < spellings_.size() ? spellings_[at] : nullptr;
}

}  // namespace trireme::data
