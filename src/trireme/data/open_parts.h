#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// open_data for each kind of data.
Data open_text(const DataConfig& config, const SampleShape& shape, const OpenOptions& options);
Data open_tokens(const DataConfig& config, const SampleShape& shape, const OptionNames& names);
Data open_images(const DataConfig& config, const SampleShape& shape, const OptionNames& names);

// What they share.
struct Streams {
  TokenStream train;
  TokenStream eval;
};
// The last part of the stream is held out: `share` of it, and at least one sample. `what` names the stream ("data").
Streams cut_tail(const TokenStream& stream, double share, std::int64_t context, const std::string& what,
                 const OptionNames& names);

// One dataset as it is, several by their weights.
struct WeightedDataset {
  std::string name;
  std::shared_ptr<const Dataset> dataset;
  double weight = 1;
};
std::shared_ptr<const Dataset> mix(const std::vector<WeightedDataset>& parts);
// "2 sources (web-*.bin 70%, code.bin 30%), "; "" for one.
std::string mixture_text(const std::vector<WeightedDataset>& parts, const Dataset& mixed);

// "1 file", "2,000 files"
std::string counted(std::size_t count, const std::string& noun);

}  // namespace trireme::data
