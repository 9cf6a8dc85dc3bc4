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
                        TextMemory& memory, std::string_view key, const OptionNames& names) {
  const TokenType type = narrowest(tokenizer.vocab());
  const auto width = static_cast<std::size_t>(type);
  const std::uint64_t before = memory.tokens;
  EncodeOptions with_check = options;
  with_check.memory = memory.there - std::min(memory.there, before);
  with_check.progress = [&](const EncodeProgress& p) {
    if (options.progress) options.progress(p);
    memory.longest = std::max(memory.longest, p.longest);
    memory.tokens = before + p.tokens * width;
    double foreseen = static_cast<double>(memory.tokens);
    if (p.bytes >= std::min(kSample, p.total_bytes))
      foreseen = static_cast<double>(before) + static_cast<double>(p.tokens * width) *
                                                   static_cast<double>(p.total_bytes) /
                                                   static_cast<double>(std::max<std::uint64_t>(1, p.bytes));
    const std::uint64_t left = memory.there - std::min(memory.there, encoding_bytes(options.threads, memory.longest));
    const std::uint64_t most = std::min(memory.most, left);
    if (foreseen > static_cast<double>(most))
      refuse(
          "{}: its tokens would take about {} of memory, and {}; write them to a file with "
          "`trireme tokenize --tokenizer … --out data.bin …` and name that in {}",
          key, format_bytes(static_cast<std::uint64_t>(foreseen)),
          left < memory.most ? fmt::format("encoding leaves {} for them", format_bytes(left))
                             : fmt::format("they may have {}", format_bytes(most)),
          names.tokens);
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
