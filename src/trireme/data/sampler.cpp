#include "trireme/data/sampler.h"

#include <algorithm>
#include <bit>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/data/mixture.h"

namespace trireme::data {
namespace {

constexpr int kRounds = 6;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return SplitMix(SplitMix(a).next() ^ b).next(); }

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key) : n_(n), key_(key) {
  TRI_CHECK(n > 0 && n <= std::uint64_t{1} << 62, "permutation of {} items", n);
  half_bits_ = std::max(1, static_cast<int>(std::bit_width(n - 1) + 1) / 2);
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  TRI_CHECK(i < n_, "item {} of {}", i, n_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  // The network permutes up to four times n numbers; following the cycle of i ends at one below n, since i itself is.
  do {
    std::uint64_t left = i >> half_bits_;
    std::uint64_t right = i & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t next = left ^ (mix(key_ + static_cast<std::uint64_t>(round), right) & mask);
      left = right;
      right = next;
    }
    i = left << half_bits_ | right;
  } while (i >= n_);
  return i;
}

Sampler::Sampler(std::shared_ptr<const Dataset> dataset, Order order, std::uint64_t seed, std::int64_t batch)
    : dataset_(std::move(dataset)), order_(order), seed_(seed), batch_(batch) {
  TRI_CHECK(dataset_ && dataset_->samples() > 0 && batch > 0, "a sampler needs samples and a batch");
}

std::int64_t Sampler::pick(std::uint64_t position, std::int64_t samples, std::uint64_t key) const {
  const auto n = static_cast<std::uint64_t>(samples);
  const std::uint64_t within = position % n;
  if (order_ == Order::sequential) return static_cast<std::int64_t>(within);
  return static_cast<std::int64_t>(Permutation(n, mix(key, position / n))(within));
}

std::int64_t Sampler::sample(std::int64_t step, std::int64_t row) const {
  const auto position =
      static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(batch_) + static_cast<std::uint64_t>(row);
  const MixedDataset* mixed = dataset_->mixed();
  if (mixed == nullptr) return pick(position, dataset_->samples(), seed_);
  const auto [source, ordinal] = mixed->mixture().at(position);
  const std::int64_t first = mixed->first(source);
  return first + pick(ordinal, mixed->first(source + 1) - first, mix(seed_, ~std::uint64_t{source}));
}

void Sampler::fill(std::int64_t step, const std::vector<RowRange>& rows, Batch& batch) const {
  begin(step, rows, batch);
  for (std::int64_t row = 0; row < batch.rows; ++row) read(row, batch);
}

void Sampler::begin(std::int64_t step, const std::vector<RowRange>& rows, Batch& batch) const {
  std::int64_t end = 0;
  batch.rows = 0;
  for (const RowRange& range : rows) {
    TRI_CHECK(range.first >= end && range.count >= 0 && range.first + range.count <= batch_,
              "rows {} to {} of a batch of {}", range.first, range.first + range.count, batch_);
    end = range.first + range.count;
    batch.rows += range.count;
  }
  batch.seed = seed_;
  batch.step = step;
  batch.ranges = rows;
  dataset_->resize(batch, batch.rows);
  dataset_->read_common(batch);
}

void Sampler::read(std::int64_t row, Batch& batch) const {
  dataset_->read(sample(batch.step, batch.global_row(row)), row, batch);
}

}  // namespace trireme::data
