#include <algorithm>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/documents.h"
#include "trireme/data/encoded_text.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {
namespace {

std::string megabytes(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", format_count(bytes));
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

std::uint64_t total_bytes(std::span<const TextFile> files) {
  std::uint64_t bytes = 0;
  for (const TextFile& file : files) bytes += file.bytes;
  return bytes;
}

// Reads files as tokens: plain bytes as they are, everything else through the tokenizer.
class Reader {
 public:
  Reader(const DataConfig& config, const OpenOptions& options)
      : options_(options),
        plain_(config.tokenizer == "bytes"),
        tokenizer_(open_tokenizer(config.tokenizer, "data.tokenizer")) {}

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  bool plain() const { return plain_; }

  TokenStream read(std::span<const TextFile> files, const std::string& key) const {
    const bool json_lines =
        std::any_of(files.begin(), files.end(), [](const TextFile& file) { return holds_json_lines(file.path); });
    if (plain_ && !json_lines) return read_text(files);
    EncodeOptions encode;
    encode.threads = options_.threads;
    constexpr std::uint64_t worth_saying = std::uint64_t{64} << 20;
    int said = 0;  // tenths
    encode.progress = [&](const EncodeProgress& p) {
      const int tenth = static_cast<int>(10 * p.bytes / std::max<std::uint64_t>(1, p.total_bytes));
      if (p.total_bytes < worth_saying || tenth <= said) return;
      said = tenth;
      log(options_.log, LogLevel::info, "{}: {} of {} encoded, {} tokens", key, megabytes(p.bytes),
          megabytes(p.total_bytes), format_count(p.tokens));
    };
    const std::uint64_t most = options_.text_memory > 0 ? options_.text_memory : physical_memory() / 2;
    return encode_text(files, *tokenizer_, encode, most, key);
  }

 private:
  const OpenOptions& options_;
  bool plain_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

Data open_text(const DataConfig& config, const SampleShape& shape, const OpenOptions& options) {
  const Reader reader(config, options);
  const std::int64_t vocab = reader.tokenizer()->vocab();
  if (shape.vocab != 0 && shape.vocab < vocab)
    refuse("model.vocab = {} is too small for the tokenizer \"{}\", which has {} tokens", shape.vocab, config.tokenizer,
           vocab);
  const std::vector<TextFile> files = find_text_files(config.text, "data.text");
  Streams streams;
  std::string held_out = "nothing held out";
  if (!config.eval.empty()) {
    const std::vector<TextFile> eval = find_text_files(config.eval, "data.eval");
    streams = {reader.read(files, "data.text"), reader.read(eval, "data.eval")};
    held_out = counted(eval.size(), "other file") + " for evaluation";
  } else if (config.holdout <= 0) {
    streams.train = reader.read(files, "data.text");
  } else if (files.size() == 1) {
    streams = cut_tail(reader.read(files, "data.text"), config.holdout, shape.context);
    const auto tail = static_cast<std::uint64_t>(streams.eval.size());
    held_out = fmt::format("its last {} held out", reader.plain() ? megabytes(tail) : format_count(tail) + " tokens");
  } else {
    // A token has at least one byte, as a rule several: four times as many bytes as tokens are needed.
    const auto least = static_cast<std::uint64_t>(shape.context + 1) * (reader.plain() ? 1 : 4);
    const Split split = split_files(files, config.holdout, least);
    if (split.held_out.empty() || split.train.empty())
      refuse(
          "data: {} are too short to train on some and hold out others whole with model.context = {}; set "
          "data.holdout = 0, name data.eval, or give more text",
          counted(files.size(), "text file"), shape.context);
    streams = {reader.read(split.train, "data.text"), reader.read(split.held_out, "data.text")};
    held_out = counted(split.held_out.size(), "whole file") + " held out";
  }
  const bool headers = std::find(config.text.begin(), config.text.end(), kStandardHeaders) != config.text.end();
  const bool only_headers = headers && config.text.size() == 1;
  std::string amount = megabytes(total_bytes(files));
  if (!reader.plain())
    amount += fmt::format(", {} tokens",
                          format_count(static_cast<std::uint64_t>(streams.train.size() + streams.eval.size())));
  Data data;
  data.summary =
      fmt::format("{}, {}, {}", counted(files.size(), only_headers ? "C++ header" : "text file"), amount, held_out);
  data.vocab = std::max(shape.vocab, vocab);
  data.tokenizer = reader.tokenizer();
  if (streams.eval.size() > 0) data.unigram_entropy = unigram_cross_entropy(streams.train, streams.eval, vocab);
  data.train = std::make_shared<TokenDataset>(std::move(streams.train), shape.context, data.vocab, "training text");
  if (streams.eval.size() > 0)
    data.eval = std::make_shared<TokenDataset>(std::move(streams.eval), shape.context, data.vocab, "held-out text");
  return data;
}

}  // namespace trireme::data
