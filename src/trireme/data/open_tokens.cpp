#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/mixture.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/token_files.h"

namespace trireme::data {
namespace {

std::string tokens_text(std::int64_t tokens) { return format_count(static_cast<std::uint64_t>(tokens)); }

TokenStream open_eval(const DataConfig& config, const SampleShape& shape) {
  std::vector<TokenSource> sources = open_token_files(config.eval, config.token_type, shape.vocab, "data.eval");
  if (sources.size() != 1) refuse("data.eval: mixing weights have no use; held-out tokens are read once each");
  return std::move(sources.front().stream);
}

// "2 sources (web-*.bin 70%, code.bin 30%)"
std::string mixture_text(const std::vector<TokenSource>& sources, const Mixture& mixture) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < std::min(sources.size(), kShown); ++k)
    parts.push_back(
        fmt::format("{} {:g}%", sources[k].pattern, 100.0 * mixture.quota(k) / static_cast<double>(Mixture::kBlock)));
  if (sources.size() > kShown) parts.emplace_back("…");
  return fmt::format("{} ({}), ", counted(sources.size(), "source"), fmt::join(parts, ", "));
}

}  // namespace

Data open_tokens(const DataConfig& config, const SampleShape& shape) {
  if (shape.vocab == 0)
    refuse("model.vocab must be given with data.tokens: token files do not say how many tokens there are");
  const bool random = config.order == "shuffled";
  const std::vector<TokenSource> sources =
      open_token_files(config.tokens, config.token_type, shape.vocab, "data.tokens", random);
  TokenStream eval;
  if (!config.eval.empty()) eval = open_eval(config, shape);

  std::vector<std::shared_ptr<const Dataset>> parts;
  std::vector<double> weights;
  std::int64_t tokens = 0;
  int files = 0;
  for (const TokenSource& source : sources) {
    const std::string what = sources.size() == 1 ? "data" : source.pattern;
    Streams streams{source.stream, {}};
    if (config.eval.empty() && config.holdout > 0) {
      streams = cut_tail(source.stream, config.holdout, shape.context, what);
      eval.append(streams.eval);
    }
    parts.push_back(
        std::make_shared<TokenDataset>(std::move(streams.train), shape.context, shape.vocab, "training " + what));
    weights.push_back(source.weight);
    tokens += source.stream.size();
    files += source.files;
  }

  Data data;
  data.vocab = shape.vocab;
  data.summary =
      fmt::format("{}, {} tokens, ", counted(static_cast<std::size_t>(files), "token file"), tokens_text(tokens));
  if (parts.size() == 1) {
    data.train = parts.front();
  } else {
    const auto mixed = std::make_shared<MixedDataset>(std::move(parts), weights);
    data.summary += mixture_text(sources, mixed->mixture());
    data.train = mixed;
  }
  data.summary += eval.size() == 0 ? "nothing held out" : tokens_text(eval.size()) + " held out";
  if (eval.size() > 0)
    data.eval = std::make_shared<TokenDataset>(std::move(eval), shape.context, shape.vocab, "held-out data");
  return data;
}

}  // namespace trireme::data
