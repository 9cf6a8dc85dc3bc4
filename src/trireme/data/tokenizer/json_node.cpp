#include "trireme/data/tokenizer/json_node.h"

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"

namespace trireme::data {

void JsonNode::refuse(std::string_view what) const { trireme::refuse("{}: {}", where_, what); }

void JsonNode::refuse_type(std::string_view type, std::string_view supported) const {
  refuse(fmt::format("type \"{}\" is not supported (supported: {})", type, supported));
}

JsonNode JsonNode::at(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("must be an object, is {}", value_->type_name()));
  const auto found = value_->find(key);
  if (found == value_->end()) refuse(fmt::format("\"{}\" is missing", key));
  return {*found, fmt::format("{}.{}", where_, key)};
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("must be an object, is {}", value_->type_name()));
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonNode{*found, fmt::format("{}.{}", where_, key)};
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) refuse(fmt::format("must be a list, is {}", value_->type_name()));
  std::vector<JsonNode> result;
  result.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) result.emplace_back((*value_)[i], fmt::format("{}[{}]", where_, i));
  return result;
}

std::vector<std::pair<std::string_view, JsonNode>> JsonNode::members() const {
  if (!value_->is_object()) refuse(fmt::format("must be an object, is {}", value_->type_name()));
  std::vector<std::pair<std::string_view, JsonNode>> result;
  result.reserve(value_->size());
  for (const auto& [key, value] : value_->get_ref<const nlohmann::json::object_t&>())
    result.emplace_back(key, JsonNode{value, fmt::format("{}.{}", where_, key)});
  return result;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) refuse(fmt::format("must be a string, is {}", value_->type_name()));
  return value_->get<std::string>();
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  const auto bad = [&] {
    refuse(fmt::format("must be a whole number from {} to {}, is {}", low, high,
                       value_->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  };
  if (!value_->is_number_integer()) bad();
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(high)) bad();
  const auto number = value_->get<std::int64_t>();
  if (number < low || number > high) bad();
  return number;
}

std::optional<std::string> JsonNode::optional_text(std::string_view key) const {
  const auto node = find(key);
  return node ? std::optional(node->text()) : std::nullopt;
}

bool JsonNode::flag(std::string_view key, bool otherwise) const {
  const auto node = find(key);
  if (!node) return otherwise;
  if (!node->value_->is_boolean()) node->refuse(fmt::format("must be true or false, is {}", node->value_->type_name()));
  return node->value_->get<bool>();
}

}  // namespace trireme::data
