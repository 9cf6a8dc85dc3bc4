#include "trireme/train/checkpoint_writer.h"

#include <chrono>
#include <ctime>
#include <limits>
#include <utility>

namespace trireme::train {
namespace {

// Of this thread, so far.
double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path run, Session& session, std::int64_t keep,
                                   std::vector<std::int64_t> broken)
    : run_(std::move(run)),
      session_(session),
      keep_(keep),
      broken_(std::move(broken)),
      shards_(saved_shards(session)),
      world_(session.world() == nullptr ? nullptr : session.world()->split(0)),
      worker_(1, [this](Begun& begun) { write(std::move(begun)); }) {}

CheckpointWriter::~CheckpointWriter() { wait(); }

void CheckpointWriter::start(io::CheckpointManifest manifest) {
  wait();
  // Held before the thread runs: the next step may reach its update first.
  hold_all();
  worker_.submit({std::move(manifest), session_.changes()});
}

void CheckpointWriter::write(Begun begun) {
  const auto begin = std::chrono::steady_clock::now();
  const double processor_begin = processor_seconds();
  const std::int64_t step = begun.manifest.step;
  Written result{.step = step, .changes = begun.changes};
  try {
    const auto copied = [this](std::size_t s, std::size_t tensor) {
      session_.rank(shards_[s].rank).held().release(shards_[s].states[tensor]);
    };
    result.bytes = write_checkpoint(run_, std::move(begun.manifest), shards_, copied, world_.get());
    if (session_.first_rank() == 0) prune_checkpoints(run_, step, keep_, broken_);
    std::erase_if(broken_, [&](std::int64_t other) { return other <= step; });
  } catch (const std::exception& e) {
    result.error = e.what();
  }
  release_all();
  result.processor_seconds = processor_seconds() - processor_begin;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  result_ = std::move(result);
}

void CheckpointWriter::hold_all() {
  for (const SavedShard& shard : shards_)
    for (const ir::StateId state : shard.states) session_.rank(shard.rank).held().hold(state);
}

void CheckpointWriter::release_all() {
  for (const SavedShard& shard : shards_)
    for (const ir::StateId state : shard.states) session_.rank(shard.rank).held().release(state);
}

void CheckpointWriter::keep_all() {
  wait();
  keep_ = std::numeric_limits<std::int64_t>::max();
}

void CheckpointWriter::wait() {
  worker_.synchronize();
  if (result_) finished_.push_back(*std::exchange(result_, std::nullopt));
}

std::vector<Written> CheckpointWriter::take() {
  if (!busy()) wait();
  return std::exchange(finished_, {});
}

}  // namespace trireme::train
