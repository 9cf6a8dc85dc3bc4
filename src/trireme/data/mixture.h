#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

// Which source each position of an endless sequence of samples reads, so that each source gets its share of them.
//
// The law: shares are rounded to parts of kBlock, largest remainders first, giving source k a quota of q_k positions in
// every block of kBlock. Within a block its j-th position falls between j * kBlock / q_k and (j + 1) * kBlock / q_k
// (rounded outwards), and among sources that could have a position the one whose interval ends first has it; of two,
// the one listed first. So after any number of positions p a source has had less than one more or less than p * q_k /
// kBlock of them, and exactly its quota at the end of each block. One block is stored, never the sequence.
class Mixture {
 public:
  static constexpr std::uint32_t kBlock = 10'000;

  // Weights are positive and finite; their sum need not be 1. A weight is refused (by its index) if its share rounds to
  // nothing.
  explicit Mixture(const std::vector<double>& weights);

  struct Place {
    std::size_t source = 0;
    std::uint64_t ordinal = 0;  // positions before this one that read the same source
  };
  Place at(std::uint64_t position) const;
  std::uint32_t quota(std::size_t source) const { return quotas_[source]; }

 private:
  struct Slot {
    std::uint32_t source = 0;
    std::uint32_t ordinal = 0;  // within the block
  };
  std::vector<std::uint32_t> quotas_;
  std::vector<Slot> block_;
};

// Samples of several datasets, one dataset's after another's; a Sampler takes from each its share, and goes through
// each at its own pace, with its own epochs and its own order.
class MixedDataset final : public Dataset {
 public:
  MixedDataset(std::vector<std::shared_ptr<const Dataset>> sources, const std::vector<double>& weights);

  std::int64_t samples() const override { return first_.back(); }
  std::int64_t tokens_per_sample() const override { return sources_.front()->tokens_per_sample(); }
  void resize(Batch& batch, std::int64_t rows) const override { sources_.front()->resize(batch, rows); }
  void read(std::int64_t sample, std::int64_t row, Batch& batch) const override;
  DataMemory memory() const override;
  const MixedDataset* mixed() const override { return this; }

  const Mixture& mixture() const { return mixture_; }
  // The samples of source k are [first(k), first(k + 1)).
  std::int64_t first(std::size_t source) const { return first_[source]; }

 private:
  std::vector<std::shared_ptr<const Dataset>> sources_;
  Mixture mixture_;
  std::vector<std::int64_t> first_;
};

}  // namespace trireme::data
