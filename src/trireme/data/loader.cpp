#include "trireme/data/loader.h"

#include <chrono>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {

Loader::Loader(Sampler sampler, std::vector<RowRange> rows, std::int64_t first_step, const LoaderOptions& options)
    : sampler_(std::move(sampler)),
      rows_(std::move(rows)),
      options_(options),
      pool_(options.threads),
      current_(options.memory),
      following_step_(first_step),
      worker_(static_cast<std::size_t>(options.depth), [this](std::int64_t& step) { work(step); }) {
  TRI_CHECK(options.depth > 0 && options.threads > 0, "a loader reads at least one batch ahead, by some thread");
  for (int i = 0; i < options.depth; ++i) free_.emplace_back(options.memory);
  for (int i = 0; i < options.depth; ++i) worker_.submit(following_step_++);
}

Loader::~Loader() { stopping_ = true; }

void Loader::wait(std::unique_lock<std::mutex>& lock, std::size_t batches) {
  const auto start = std::chrono::steady_clock::now();
  changed_.wait(lock, [&] { return ready_.size() >= batches || error_; });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool Loader::wait(std::size_t batches) {
  TRI_CHECK(batches <= static_cast<std::size_t>(options_.depth), "{} batches of {} that are read ahead", batches,
            options_.depth);
  std::unique_lock lock(mutex_);
  wait(lock, batches);
  return ready_.size() >= batches;
}

const Batch& Loader::next() {
  std::unique_lock lock(mutex_);
  wait(lock, 1);
  if (ready_.empty()) std::rethrow_exception(error_);
  std::swap(current_, ready_.front());
  free_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  lock.unlock();
  worker_.submit(following_step_++);
  return current_;
}

const Batch* Loader::following() {
  const std::lock_guard lock(mutex_);
  return ready_.empty() ? nullptr : &ready_.front();
}

void Loader::make(std::int64_t step, Batch& batch) {
  sampler_.begin(step, rows_, batch);
  if (batch.images.empty()) {  // text is copied faster than threads are woken
    for (std::int64_t row = 0; row < batch.rows; ++row) sampler_.read(row, batch);
    return;
  }
  const bool narrow = options_.images != DType::f32;
  if (narrow) {
    batch.narrow_type = options_.images;
    batch.narrow_images.resize(batch.images.size());
  }
  const std::size_t size = batch.images.size() / static_cast<std::size_t>(batch.rows);
  pool_.run(batch.rows, [&](std::int64_t row) {
    const std::size_t at = static_cast<std::size_t>(row) * size;
    sampler_.read(row, batch);
    if (narrow)
      narrow_images(std::span(batch.images).subspan(at, size), options_.images,
                    std::span(batch.narrow_images).subspan(at, size));
  });
}

// There is a free batch for each step that is submitted. Behind an error nothing is read.
void Loader::work(std::int64_t step) {
  if (stopping_) return;
  try {
    Batch batch(options_.memory);
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      batch = std::move(free_.back());
      free_.pop_back();
    }
    make(step, batch);
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(batch));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  changed_.notify_all();
}

}  // namespace trireme::data
