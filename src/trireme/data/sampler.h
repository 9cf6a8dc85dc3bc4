#pragma once
#include <cstdint>
#include <memory>

#include "trireme/data/data_config.h"
#include "trireme/data/dataset.h"

namespace trireme::data {

// A permutation of 0 … n-1 that is computed, not stored: a Feistel network over the next even number of bits, walked
// along its cycle until the result is below n.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key);
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t n_;
  std::uint64_t key_;
  int half_bits_;
};

// Which sample each row of each update reads: a pure function of (seed, step, row), so it is the same for any number of
// ranks and after any restart. Sequential takes sample step*batch + row, starting over at the end; shuffled permutes
// the samples anew in each epoch. Of a mixture each source is gone through in that way by itself.
//
//   Sampler sampler(data.train, Order::shuffled, seed, batch);
//   sampler.fill(step, {{first_row, rows}}, batch);    // the rows of one rank
class Sampler {
 public:
  Sampler(std::shared_ptr<const Dataset> dataset, Order order, std::uint64_t seed, std::int64_t batch);

  std::int64_t sample(std::int64_t step, std::int64_t row) const;
  // `rows` ascend.
  void fill(std::int64_t step, const std::vector<RowRange>& rows, Batch& batch) const;
  // The same in two: what rows there will be, then each of them, by any thread.
  void begin(std::int64_t step, const std::vector<RowRange>& rows, Batch& batch) const;
  void read(std::int64_t row, Batch& batch) const;

  const Dataset& dataset() const { return *dataset_; }
  std::int64_t batch() const { return batch_; }

 private:
  // The sample at `position` of an endless walk through `samples` of them.
  std::int64_t pick(std::uint64_t position, std::int64_t samples, std::uint64_t key) const;

  std::shared_ptr<const Dataset> dataset_;
  Order order_;
  std::uint64_t seed_;
  std::int64_t batch_;
};

}  // namespace trireme::data
