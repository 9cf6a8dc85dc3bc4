#include <algorithm>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/byte_tokenizer.h"

namespace trireme::data {
namespace {

std::string megabytes(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", format_count(static_cast<std::uint64_t>(bytes)));
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

Data from_streams(Streams streams, std::int64_t context, std::int64_t vocab, const std::string& kind) {
  Data data;
  data.vocab = vocab;
  data.train = std::make_shared<TokenDataset>(std::move(streams.train), context, vocab, "training " + kind);
  if (streams.eval.size() > 0)
    data.eval = std::make_shared<TokenDataset>(std::move(streams.eval), context, vocab, "held-out " + kind);
  return data;
}

Data open_text(const DataConfig& config, const SampleShape& shape) {
  if (config.tokenizer != "bytes")
    refuse("not available in this version: data.tokenizer = \"{}\" (available: \"bytes\")", config.tokenizer);
  if (shape.vocab != 0 && shape.vocab < ByteTokenizer::kVocab)
    refuse("model.vocab = {} is too small for the tokenizer \"bytes\", which has {} tokens", shape.vocab,
           ByteTokenizer::kVocab);
  const std::vector<TextFile> files = find_text_files(config.text, "data.text");
  Streams streams;
  std::string held_out = "nothing held out";
  if (!config.eval.empty()) {
    const std::vector<TextFile> eval = find_text_files(config.eval, "data.eval");
    streams = {read_text(files), read_text(eval)};
    held_out = counted(eval.size(), "other file") + " for evaluation";
  } else if (config.holdout <= 0) {
    streams.train = read_text(files);
  } else if (files.size() == 1) {
    streams = cut_tail(read_text(files), config.holdout, shape.context);
    held_out = fmt::format("its last {} held out", megabytes(streams.eval.size()));
  } else {
    const Split split = split_files(files, config.holdout, static_cast<std::uint64_t>(shape.context) + 1);
    if (split.held_out.empty() || split.train.empty())
      refuse(
          "data: {} are too short to train on some and hold out others whole with model.context = {}; set "
          "data.holdout = 0, name data.eval, or give more text",
          counted(files.size(), "text file"), shape.context);
    streams = {read_text(split.train), read_text(split.held_out)};
    held_out = counted(split.held_out.size(), "whole file") + " held out";
  }
  const bool headers = std::find(config.text.begin(), config.text.end(), kStandardHeaders) != config.text.end();
  const bool only_headers = headers && config.text.size() == 1;
  std::uint64_t bytes = 0;
  for (const TextFile& file : files) bytes += file.bytes;
  std::string summary = fmt::format("{}, {}, {}", counted(files.size(), only_headers ? "C++ header" : "text file"),
                                    megabytes(static_cast<std::int64_t>(bytes)), held_out);
  const double entropy = streams.eval.size() > 0 ? unigram_cross_entropy(streams.train, streams.eval) : 0;
  Data data = from_streams(std::move(streams), shape.context, std::max(shape.vocab, ByteTokenizer::kVocab), "text");
  data.summary = std::move(summary);
  data.unigram_entropy = entropy;
  return data;
}

}  // namespace

std::string counted(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

Streams cut_tail(const TokenStream& stream, double share, std::int64_t context, const std::string& what) {
  const auto part = static_cast<std::int64_t>(share * static_cast<double>(stream.size()));
  const std::int64_t held_out = std::max(part, context + 1);
  if (stream.size() - held_out < context + 1)
    refuse(
        "{}: {} tokens are too few to train on and to hold out {} of them with model.context = {}; set "
        "data.holdout = 0, name data.eval, or give more data",
        what, format_count(static_cast<std::uint64_t>(stream.size())),
        format_count(static_cast<std::uint64_t>(held_out)), context);
  return {stream.slice(0, stream.size() - held_out), stream.slice(stream.size() - held_out, stream.size())};
}

Data open_data(const DataConfig& config, const SampleShape& shape) {
  if (shape.images) return open_images(config, shape);
  return config.tokens.empty() ? open_text(config, shape) : open_tokens(config, shape);
}

}  // namespace trireme::data
