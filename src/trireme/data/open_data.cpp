#include <algorithm>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/mixture.h"
#include "trireme/data/open_parts.h"

namespace trireme::data {

std::string counted(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

std::shared_ptr<const Dataset> mix(const std::vector<WeightedDataset>& parts) {
  if (parts.size() == 1) return parts.front().dataset;
  std::vector<std::shared_ptr<const Dataset>> datasets;
  std::vector<double> weights;
  for (const WeightedDataset& part : parts) {
    datasets.push_back(part.dataset);
    weights.push_back(part.weight);
  }
  return std::make_shared<MixedDataset>(std::move(datasets), weights);
}

std::string mixture_text(const std::vector<WeightedDataset>& parts, const Dataset& mixed) {
  if (parts.size() == 1) return {};
  constexpr std::size_t kShown = 4;
  std::vector<std::string> shown;
  for (std::size_t k = 0; k < std::min(parts.size(), kShown); ++k)
    shown.push_back(fmt::format("{} {:g}%", parts[k].name,
                                100.0 * mixed.mixed()->mixture().quota(k) / static_cast<double>(Mixture::kBlock)));
  if (parts.size() > kShown) shown.emplace_back("…");
  return fmt::format("{} ({}), ", counted(parts.size(), "source"), fmt::join(shown, ", "));
}

Streams cut_tail(const TokenStream& stream, double share, std::int64_t context, const std::string& what,
                 const OptionNames& names) {
  const auto part = static_cast<std::int64_t>(share * static_cast<double>(stream.size()));
  const std::int64_t held_out = std::max(part, context + 1);
  if (stream.size() < context + 1)
    refuse("{}: {} tokens are too few for one sequence of {} = {}, which needs {}; give more data, or a smaller {}",
           what, format_count(static_cast<std::uint64_t>(stream.size())), names.context, context, context + 1,
           names.context);
  if (stream.size() - held_out < context + 1)
    refuse(
        "{}: {} tokens are too few to train on and to hold out {} of them with {} = {}; set {} = 0, name "
        "{}, or give more data",
        what, format_count(static_cast<std::uint64_t>(stream.size())),
        format_count(static_cast<std::uint64_t>(held_out)), names.context, context, names.holdout, names.eval);
  return {stream.slice(0, stream.size() - held_out), stream.slice(stream.size() - held_out, stream.size())};
}

Data open_data(const DataConfig& config, const SampleShape& shape, const OpenOptions& options) {
  if (shape.images) return open_images(config, shape, options.names);
  return config.tokens.empty() ? open_text(config, shape, options) : open_tokens(config, shape, options.names);
}

}  // namespace trireme::data
