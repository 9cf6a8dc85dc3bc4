#include "trireme/data/mixture.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

std::vector<std::uint32_t> quotas_of(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint32_t> quotas;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double share = weight / total * Mixture::kBlock;
    quotas.push_back(static_cast<std::uint32_t>(share));
    remainders.push_back(share - static_cast<double>(quotas.back()));
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return remainders[a] > remainders[b]; });
  std::uint32_t given = std::accumulate(quotas.begin(), quotas.end(), 0U);
  for (std::size_t i = 0; given < Mixture::kBlock; i = (i + 1) % order.size(), ++given) ++quotas[order[i]];
  return quotas;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) : quotas_(quotas_of(weights)) {
  for (std::size_t k = 0; k < quotas_.size(); ++k)
    if (quotas_[k] == 0) refuse("the mixing weight {} is less than {} of the weights' sum", weights[k], 0.5 / kBlock);
  std::vector<std::uint32_t> given(quotas_.size());
  for (std::uint32_t slot = 0; slot < kBlock; ++slot) {
    std::size_t chosen = quotas_.size();
    std::uint64_t earliest = 0;
    for (std::size_t k = 0; k < quotas_.size(); ++k) {
      const std::uint64_t opens = std::uint64_t{given[k]} * kBlock / quotas_[k];
      const std::uint64_t closes = ((given[k] + std::uint64_t{1}) * kBlock + quotas_[k] - 1) / quotas_[k];
      if (given[k] == quotas_[k] || opens > slot || (chosen < quotas_.size() && closes >= earliest)) continue;
      chosen = k;
      earliest = closes;
    }
    TRI_CHECK(chosen < quotas_.size() && earliest > slot, "no source for position {} of a block", slot);
    block_.push_back({static_cast<std::uint32_t>(chosen), given[chosen]++});
  }
}

Mixture::Place Mixture::at(std::uint64_t position) const {
  const Slot& slot = block_[position % kBlock];
  return {slot.source, position / kBlock * quotas_[slot.source] + slot.ordinal};
}

MixedDataset::MixedDataset(std::vector<std::shared_ptr<const Dataset>> sources, const std::vector<double>& weights)
    : sources_(std::move(sources)), mixture_(weights), first_{0} {
  TRI_CHECK(!sources_.empty() && sources_.size() == weights.size(), "{} weights for {} sources", weights.size(),
            sources_.size());
  for (const auto& source : sources_) first_.push_back(first_.back() + source->samples());
}

void MixedDataset::read(std::int64_t sample, std::int64_t row, Batch& batch) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), sample);
  const auto source = static_cast<std::size_t>(after - first_.begin()) - 1;
  TRI_CHECK(source < sources_.size(), "sample {} of {}", sample, samples());
  sources_[source]->read(sample - first_[source], row, batch);
}

DataMemory MixedDataset::memory() const {
  DataMemory sum;
  for (const auto& source : sources_) sum += source->memory();
  return sum;
}

}  // namespace trireme::data
