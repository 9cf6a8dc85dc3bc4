#include <algorithm>
#include <utility>

#include "trireme/core/cgroup.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/documents.h"
#include "trireme/data/encoded_text.h"
#include "trireme/data/find_files.h"
#include "trireme/data/mixture.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/text_doubts.h"
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

// What the program itself takes, whatever it reads.
constexpr std::uint64_t kProgram = std::uint64_t{48} << 20;

// Reads files as tokens: plain bytes as they are, everything else through the tokenizer.
class TextReader {
 public:
  TextReader(const DataConfig& config, const OpenOptions& options)
      : options_(options),
        plain_(config.tokenizer == "bytes"),
        tokenizer_(open_tokenizer(config.tokenizer, std::string(options.names.tokenizer))) {
    const std::uint64_t all = options.memory > 0 ? options.memory : usable_memory();
    memory_.there = all - std::min(all, kProgram + tokenizer_->bytes());
    memory_.most = options.text_memory > 0 ? options.text_memory : all / 2;
  }

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  bool plain() const { return plain_; }

  TokenStream read(std::span<const TextFile> files, std::string_view key) const {
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
    encoded_ = true;
    return encode_text(files, *tokenizer_, encode, memory_, key, options_.names);
  }

  // What reading took in addition to the tokens.
  std::uint64_t encoding_bytes() const {
    return encoded_ ? data::encoding_bytes(options_.threads, memory_.longest) : 0;
  }

 private:
  const OpenOptions& options_;
  bool plain_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  mutable TextMemory memory_;
  mutable bool encoded_ = false;
};

// Files that are read together: all of them, or one source of a mixture.
struct TextSource {
  std::string pattern;
  double weight = 1;
  std::vector<TextFile> files;
};

std::vector<TextSource> find_sources(const DataConfig& config, std::string_view key) {
  const std::vector<WeightedPattern> patterns = parse_weights(config.text, key);
  if (patterns.empty()) refuse("{} is empty: name files, folders or globs", key);
  if (!patterns.front().weight) return {{"data", 1, find_text_files(config.text, key)}};
  std::vector<TextSource> sources;
  for (const WeightedPattern& pattern : patterns)
    sources.push_back({pattern.pattern, *pattern.weight, find_text_files({&pattern.pattern, 1}, key)});
  return sources;
}

// A source's text, the share `holdout` of it held out; `held_out` becomes what of it in words.
Streams read_source(const TextReader& reader, const TextSource& source, double holdout, std::int64_t context,
                    const OptionNames& names, std::string& held_out) {
  const std::vector<TextFile>& files = source.files;
  if (holdout <= 0) return {reader.read(files, names.text), {}};
  if (files.size() == 1) {
    Streams streams = cut_tail(reader.read(files, names.text), holdout, context, source.pattern, names);
    const auto tail = static_cast<std::uint64_t>(streams.eval.size());
    held_out = fmt::format("its last {} held out", reader.plain() ? megabytes(tail) : format_count(tail) + " tokens");
    return streams;
  }
  if (total_bytes(files) <= static_cast<std::uint64_t>(context))
    refuse("{}: {} with {} in all are too short for one sequence of {} = {}; give more text, or a smaller {}",
           source.pattern, counted(files.size(), "text file"), megabytes(total_bytes(files)), names.context, context,
           names.context);
  // A token has at least one byte, as a rule several: four times as many bytes as tokens are needed.
  const auto least = static_cast<std::uint64_t>(context + 1) * (reader.plain() ? 1 : 4);
  const Split split = split_files(files, holdout, least);
  if (split.held_out.empty() || split.train.empty())
    refuse(
        "{}: {} are too short to train on some and hold out others whole with {} = {}; set {} = 0, name {}, or give "
        "more text",
        source.pattern, counted(files.size(), "text file"), names.context, context, names.holdout, names.eval);
  held_out = counted(split.held_out.size(), "whole file") + " held out";
  // Of few files one is more than was asked for.
  const double share = static_cast<double>(total_bytes(split.held_out)) / static_cast<double>(total_bytes(files));
  if (share > 2 * holdout) held_out += fmt::format(", {:.0f}% of the bytes", 100 * share);
  return {reader.read(split.train, names.text), reader.read(split.held_out, names.text)};
}

}  // namespace

Data open_text(const DataConfig& config, const SampleShape& shape, const OpenOptions& options) {
  const OptionNames& names = options.names;
  const TextReader reader(config, options);
  const std::int64_t vocab = reader.tokenizer()->vocab();
  if (shape.vocab != 0 && shape.vocab < vocab)
    refuse("{} = {} is too small for the tokenizer \"{}\", which has {} tokens", names.vocab, shape.vocab,
           config.tokenizer, vocab);
  const std::vector<TextSource> sources = find_sources(config, names.text);
  for (const std::string& doubt : text_doubts(config.text, config.eval, names))
    log(options.log, LogLevel::warning, "{}", doubt);
  Data data;
  data.vocab = std::max(shape.vocab, vocab);
  data.tokenizer = reader.tokenizer();
  std::string held_out = "nothing held out";
  TokenStream train;
  TokenStream eval;
  if (!config.eval.empty()) {
    const std::vector<TextFile> files = find_text_files(config.eval, names.eval);
    eval = reader.read(files, names.eval);
    held_out = counted(files.size(), "other file") + " for evaluation";
  }
  std::vector<WeightedDataset> parts;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  for (const TextSource& source : sources) {
    Streams streams =
        read_source(reader, source, config.eval.empty() ? config.holdout : 0, shape.context, names, held_out);
    if (config.eval.empty()) eval.append(streams.eval);
    train.append(streams.train);
    const std::string what = sources.size() == 1 ? "training text" : "training " + source.pattern;
    parts.push_back({source.pattern,
                     std::make_shared<TokenDataset>(std::move(streams.train), shape.context, data.vocab, what, names),
                     source.weight});
    files += source.files.size();
    bytes += total_bytes(source.files);
  }
  data.encoding_bytes = reader.encoding_bytes();
  data.train = mix(parts);
  if (parts.size() > 1 && config.eval.empty() && eval.size() > 0)
    held_out = format_count(static_cast<std::uint64_t>(eval.size())) + " tokens held out";
  const bool only_headers = config.text == std::vector<std::string>{kCxxHeaders};
  std::string amount = megabytes(bytes);
  if (!reader.plain())
    amount += fmt::format(", {} tokens by {}", format_count(static_cast<std::uint64_t>(train.size() + eval.size())),
                          config.tokenizer);
  data.summary = fmt::format("{}, {}, {}{}", counted(files, only_headers ? "C++ header" : "text file"), amount,
                             mixture_text(parts, *data.train), held_out);
  if (eval.size() > 0) {
    data.unigram_entropy = unigram_cross_entropy(train, eval, vocab);
    data.eval = std::make_shared<TokenDataset>(std::move(eval), shape.context, data.vocab, "held-out text", names);
  }
  return data;
}

}  // namespace trireme::data
