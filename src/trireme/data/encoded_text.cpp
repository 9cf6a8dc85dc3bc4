#include "trireme/data/encoded_text.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

// Enough text to tell how many tokens the rest will be.
constexpr std::uint64_t kSample = std::uint64_t{16} << 20;

TokenType narrowest(std::int64_t vocab) {
  return vocab <= 256 ? TokenType::u8 : vocab <= 65536 ? TokenType::u16 : TokenType::u32;
}

}  // namespace

TokenStream encode_text(std::span<const TextFile> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                        std::uint64_t max_bytes, std::string_view key, const OptionNames& names) {
  const TokenType type = narrowest(tokenizer.vocab());
  const auto width = static_cast<std::size_t>(type);
  EncodeOptions with_check = options;
  with_check.progress = [&](const EncodeProgress& p) {
    if (options.progress) options.progress(p);
    if (p.bytes < std::min(kSample, p.total_bytes)) return;
    const double foreseen = static_cast<double>(p.tokens * width) * static_cast<double>(p.total_bytes) /
                            static_cast<double>(std::max<std::uint64_t>(1, p.bytes));
    if (foreseen > static_cast<double>(max_bytes))
      refuse(
          "{}: its tokens would take about {} of memory, more than half of what there is; write them to a file with "
          "`trireme tokenize --tokenizer … --out data.bin …` and name that in {}",
          key, format_bytes(static_cast<std::uint64_t>(foreseen)), names.tokens);
  };
  TokenStream stream;
  encode_documents(files, tokenizer, with_check, [&](std::span<const std::int32_t> tokens) {
    auto block = std::make_shared<std::vector<std::byte>>(tokens.size() * width);
    // Little-endian: the first bytes of a token are its narrow form.
    for (std::size_t i = 0; i < tokens.size(); ++i) std::memcpy(block->data() + i * width, &tokens[i], width);
    stream.append(std::string(key), block, *block, type);
  });
  return stream;
}

}  // namespace trireme::data
