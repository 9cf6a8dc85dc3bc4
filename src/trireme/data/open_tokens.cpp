#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/token_files.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {
namespace {

std::string tokens_text(std::int64_t tokens) { return format_count(static_cast<std::uint64_t>(tokens)); }

TokenStream open_eval(const DataConfig& config, const SampleShape& shape, const OptionNames& names) {
  std::vector<TokenSource> sources =
      open_token_files(config.eval, config.token_type, shape.vocab, names.eval, false, names);
  if (sources.size() != 1) refuse("{}: mixing weights have no use; held-out tokens are read once each", names.eval);
  return std::move(sources.front().stream);
}

}  // namespace

Data open_tokens(const DataConfig& config, const SampleShape& shape, const OptionNames& names) {
  if (const bool named = config.tokenizer != "bytes" && config.tokenizer != "none"; shape.vocab == 0 && named) {
    SampleShape known = shape;
    known.vocab = open_tokenizer(config.tokenizer, std::string(names.tokenizer))->vocab();
    return open_tokens(config, known, names);
  }
  if (shape.vocab == 0)
    refuse("{} must be given with {}, or the {} they were made with: token files do not say how many tokens there are",
           names.vocab, names.tokens, names.tokenizer);
  const bool random = config.order == Order::shuffled;
  const std::vector<TokenSource> sources =
      open_token_files(config.tokens, config.token_type, shape.vocab, names.tokens, random, names);
  TokenStream eval;
  if (!config.eval.empty()) eval = open_eval(config, shape, names);

  std::vector<WeightedDataset> parts;
  std::int64_t tokens = 0;
  int files = 0;
  for (const TokenSource& source : sources) {
    const std::string what = sources.size() == 1 ? "data" : source.pattern;
    Streams streams{source.stream, {}};
    if (config.eval.empty() && config.holdout > 0) {
      streams = cut_tail(source.stream, config.holdout, shape.context, what, names);
      eval.append(streams.eval);
    }
    parts.push_back({source.pattern,
                     std::make_shared<TokenDataset>(std::move(streams.train), shape.context, shape.vocab,
                                                    "training " + what, names),
                     source.weight});
    tokens += source.stream.size();
    files += source.files;
  }

  Data data;
  data.vocab = shape.vocab;
  data.train = mix(parts);
  data.summary = fmt::format("{}, {} tokens, {}{}", counted(static_cast<std::size_t>(files), "token file"),
                             tokens_text(tokens), mixture_text(parts, *data.train),
                             eval.size() == 0 ? "nothing held out" : tokens_text(eval.size()) + " held out");
  if (eval.size() > 0)
    data.eval = std::make_shared<TokenDataset>(std::move(eval), shape.context, shape.vocab, "held-out data", names);
  return data;
}

}  // namespace trireme::data
