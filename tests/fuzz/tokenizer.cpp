#include "trireme/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <string>

#include "fuzz/targets.h"
#include "trireme/data/tokenizer/json_tokenizer.h"

namespace trireme::fuzz {
namespace {

void use(const data::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, data::Specials::add);
  const bool known = std::all_of(ids.begin(), ids.end(), [&](auto id) { return id >= 0 && id < tokenizer.vocab(); });
  fail_if(!known, "an id is not below the vocabulary's size");
  tokenizer.decode(ids, data::Specials::none);
  tokenizer.decode(ids, data::Specials::add);
  data::StreamDecoder stream(tokenizer, data::Specials::add);
  for (const std::int32_t id : ids) stream.push(id);
  stream.finish();
}

}  // namespace

void tokenizer(Input input) {
  const std::string_view all = text_of(input);
  const std::size_t end = all.find('\0');
  const std::string_view text = end == std::string_view::npos ? std::string_view() : all.substr(end + 1);
  const data::JsonTokenizer tokenizer(std::string(all.substr(0, end)), "tokenizer.json");
  use(tokenizer,
      "The quick (brown) fox's 12345 jumps\n\n\tover  caf\xc3\xa9 \xe2\x98\x95\xf0\x9f\x91\xa9\xe2\x80\x8d"
      "\xf0\x9f\x92\xbb <|endoftext|> \xff\xfe </s>");
  use(tokenizer, text);
  const std::int32_t strange[] = {0, -1, 2147483647, 1, static_cast<std::int32_t>(tokenizer.vocab())};
  tokenizer.decode(strange);
}

}  // namespace trireme::fuzz
