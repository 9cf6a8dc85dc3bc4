#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/worker.h"
#include "trireme/train/checkpoint.h"

namespace trireme::train {

// What became of a checkpoint.
struct Written {
  std::int64_t step = 0;
  std::uint64_t changes = 0;              // of the session when it began (Session::changes)
  std::optional<std::string> error = {};  // why there is none
  std::uint64_t bytes = 0;
  double seconds = 0;
  double processor_seconds = 0;  // of the thread that wrote it
};

// Writes a run's checkpoints while its training goes on.
//
// `start` returns at once. A thread then copies the saved state to the session's staging and from there writes it to
// the disk. Forward and backward passes only read that state; the instruction that first overwrites a tensor waits
// until its copy has been made (Rank::held). With staging for all of it (train/saved_state.h) that is soon, with
// less the copies go at the disk's pace.
//
// A failure is no exception here: it is reported by `take`, and what was saved before stays.
class CheckpointWriter {
 public:
  // `session` must outlive the writer. `broken` are steps whose folders are known to be damaged.
  CheckpointWriter(std::filesystem::path run, Session& session, std::int64_t keep, std::vector<std::int64_t> broken);
  // Waits for what is being written.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins the checkpoint that `manifest` describes, of the state as it is now. Waits first for the one before.
  void start(io::CheckpointManifest manifest);
  // From here on older checkpoints stay, however many there are. Waits for what is being written.
  void keep_all();
  bool busy() const { return !worker_.idle(); }
  void wait();
  // Those finished since the last call.
  std::vector<Written> take();

 private:
  struct Begun {
    io::CheckpointManifest manifest;
    std::uint64_t changes = 0;
  };
  void write(Begun begun);
  void hold_all();
  void release_all();

  std::filesystem::path run_;
  Session& session_;
  std::int64_t keep_;
  std::vector<std::int64_t> broken_;
  std::vector<SavedShard> shards_;
  std::unique_ptr<comm::Communicator> world_;  // for the thread alone; null: no other processes
  std::optional<Written> result_;              // the thread's while it is busy
  std::vector<Written> finished_;
  Worker<Begun> worker_;  // last: starts when everything else exists
};

}  // namespace trireme::train
