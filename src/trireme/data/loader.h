#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "trireme/core/thread_pool.h"
#include "trireme/core/worker.h"
#include "trireme/data/sampler.h"

namespace trireme::data {

struct LoaderOptions {
  int depth = 2;                                                         // batches ahead, at most
  int threads = 1;                                                       // that make a batch of images
  DType images = DType::f32;                                             // bf16 or f16: images in that too
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();  // for images; must outlive the loader
};

// Reads ahead on a thread of its own, which may have helpers: some rows of steps first_step, first_step + 1, … in
// order.
//
//   Loader loader(sampler, {{first_row, rows}}, first_step);
//   const Batch& batch = loader.next();          // valid until the next call
//
// An exception while reading is thrown by the `next` that would have returned that batch. Destruction waits for a batch
// that is being made.
class Loader {
 public:
  Loader(Sampler sampler, std::vector<RowRange> rows, std::int64_t first_step, const LoaderOptions& options = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  const Batch& next();
  // What the next call of `next` will return, if it is there already; valid as long as that. Null: not there yet.
  const Batch* following();
  // Waits until so many calls of `next` would not: false if one of them would throw. At most the depth.
  bool wait(std::size_t batches = 1);
  // Seconds `next` has waited for data so far.
  double waited() const { return waited_; }

 private:
  void work(std::int64_t step);
  void wait(std::unique_lock<std::mutex>& lock, std::size_t batches);
  void make(std::int64_t step, Batch& batch);

  Sampler sampler_;
  std::vector<RowRange> rows_;
  LoaderOptions options_;
  ThreadPool pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::vector<Batch> free_;
  std::exception_ptr error_;
  std::atomic<bool> stopping_ = false;
  Batch current_;
  double waited_ = 0;
  std::int64_t following_step_;  // that is submitted next
  Worker<std::int64_t> worker_;  // makes the batch of a step; last: starts when everything else exists
};

}  // namespace trireme::data
