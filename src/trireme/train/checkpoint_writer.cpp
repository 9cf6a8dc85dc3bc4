#include "trireme/train/checkpoint_writer.h"

#include <chrono>
#include <ctime>
#include <utility>

namespace trireme::train {

CheckpointWriter::CheckpointWriter(std::filesystem::path run, Session& session, std::int64_t keep,
                                   std::vector<std::int64_t> broken)
    : run_(std::move(run)),
      session_(session),
      keep_(keep),
      broken_(std::move(broken)),
      shards_(saved_shards(session)),
      world_(session.world() == nullptr ? nullptr : session.world()->split(0)) {}

CheckpointWriter::~CheckpointWriter() { wait(); }

void CheckpointWriter::start(io::CheckpointManifest manifest) {
  wait();
  done_.store(false, std::memory_order_relaxed);
  // Held before the thread runs: the next step may reach its update first.
  hold_all();
  try {
    thread_ = std::thread([this, manifest = std::move(manifest)]() mutable { write(std::move(manifest)); });
  } catch (...) {
    release_all();
    throw;
  }
}

void CheckpointWriter::write(io::CheckpointManifest manifest) {
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t step = manifest.step;
  result_ = {.step = step};
  try {
    const auto copied = [this](std::size_t s, std::size_t tensor) {
      session_.rank(shards_[s].rank).held().release(shards_[s].states[tensor]);
    };
    result_.bytes = write_checkpoint(run_, std::move(manifest), shards_, copied, world_.get());
    if (session_.first_rank() == 0) prune_checkpoints(run_, step, keep_, broken_);
    std::erase_if(broken_, [&](std::int64_t other) { return other <= step; });
  } catch (const std::exception& e) {
    result_.error = e.what();
  }
  release_all();
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);  // a thread per checkpoint: all of its time
  result_.processor_seconds = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  done_.store(true, std::memory_order_release);
}

void CheckpointWriter::hold_all() {
  for (const SavedShard& shard : shards_)
    for (const ir::StateId state : shard.states) session_.rank(shard.rank).held().hold(state);
}

void CheckpointWriter::release_all() {
  for (const SavedShard& shard : shards_)
    for (const ir::StateId state : shard.states) session_.rank(shard.rank).held().release(state);
}

void CheckpointWriter::wait() {
  if (!thread_.joinable()) return;
  thread_.join();
  finished_.push_back(std::move(result_));
}

std::vector<Written> CheckpointWriter::take() {
  if (thread_.joinable() && done_.load(std::memory_order_acquire)) wait();
  return std::exchange(finished_, {});
}

}  // namespace trireme::train
