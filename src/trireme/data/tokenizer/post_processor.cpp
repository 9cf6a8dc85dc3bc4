#include "trireme/data/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "trireme/data/tokenizer/vocabulary.h"

namespace trireme::data {
namespace {

std::int32_t read_id(const JsonNode& node) {
  return static_cast<std::int32_t>(node.integer(0, Vocabulary::kMaxIds - 1));
}

// "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]. A text may stand in it more than once only in
// theory: refused.
Frame read_template(const JsonNode& node) {
  Frame frame;
  bool seen = false;
  const auto specials = node.find("special_tokens");
  for (const JsonNode& item : node.at("single").items()) {
    if (item.find("Sequence")) {
      if (seen) item.refuse("the text stands in the template twice, which is not supported");
      seen = true;
    } else if (const auto special = item.find("SpecialToken")) {
      const std::string name = special->text("id");
      if (!specials) special->refuse("there are no \"special_tokens\" next to the template");
      for (const JsonNode& id : specials->at(name).at("ids").items())
        (seen ? frame.after : frame.before).push_back(read_id(id));
    } else {
      item.refuse("must be {\"Sequence\": …} or {\"SpecialToken\": …}");
    }
  }
  if (!seen) node.at("single").refuse("has no place for the text");
  return frame;
}

// ["</s>", 2]
std::int32_t read_token_and_id(const JsonNode& node) {
  const std::vector<JsonNode> items = node.items();
  if (items.size() != 2) node.refuse("must be a token and its id");
  return read_id(items[1]);
}

// What surrounds the text so far is part of the text for the next.
void read(const JsonNode& node, int depth, Frame& frame) {
  const std::string type = node.text("type");
  Frame more;
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) node.refuse("sequences are nested too deep");
    for (const JsonNode& item : node.at("processors").items()) read(item, depth + 1, frame);
  } else if (type == "TemplateProcessing") {
    more = read_template(node);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    more.before = {read_token_and_id(node.at("cls"))};
    more.after = {read_token_and_id(node.at("sep"))};
  } else if (type != "ByteLevel") {  // which changes offsets alone
    node.refuse_type(type, "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence");
  }
  frame.before.insert(frame.before.begin(), more.before.begin(), more.before.end());
  frame.after.insert(frame.after.end(), more.after.begin(), more.after.end());
}

}  // namespace

Frame read_frame(const JsonNode& node) {
  Frame frame;
  read(node, 0, frame);
  return frame;
}

}  // namespace trireme::data
