#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/device/arena.h"
#include "trireme/device/stream.h"
#include "trireme/program/program.h"
#include "trireme/runtime/collectives.h"
#include "trireme/runtime/disk_copies.h"
#include "trireme/runtime/failure.h"
#include "trireme/runtime/held_states.h"
#include "trireme/runtime/prepared.h"
#include "trireme/runtime/process_groups.h"
#include "trireme/runtime/staging.h"
#include "trireme/runtime/timeline.h"

namespace trireme::runtime {

// Runs one program, again and again, on an arena that holds its state. Everything is prepared when it is constructed:
// a run on a CPU allocates nothing (but for what oneDNN needs to remember a call's arguments), and none looks at a
// graph.
//
//   Executor step(program, arena, pool);
//   step.bind("tokens", micro, tokens);   // read during run()
//   step.run();
//   float loss = step.scalar("loss");
//
// It walks the program and issues each instruction on its stream (device/stream.h). From the second run on, the
// program's capture regions are replayed.
class Executor {
 public:
  // `program`, `arena`, `pool`, `tiers` and `ranks` must outlive the executor. The arena is of the program's device and
  // holds at least program.arena_bytes, the tiers what the program keeps there, and the pool has at most
  // program.threads threads. `ranks` is this rank's place among those that run the program together (null: alone);
  // `algorithms` are those that the run computes by (null: nothing is recorded), and outlive the executor too.
  Executor(const program::Program& program, device::Arena& arena, ThreadPool& pool, const Tiers& tiers = {},
           ProcessGroups* ranks = nullptr, device::Algorithms* algorithms = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Where the graph input `name` of a micro-batch is read from. Throws for an unknown name or a wrong size. `step` says
  // whose data they are: those of one step are always the same.
  void bind(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step = kNoStep) {
    staging_.bind(name, micro, data, step);
  }
  template <class T>
  void bind(std::string_view name, int micro, std::span<const T> data, std::int64_t step = kNoStep) {
    bind(name, micro, std::as_bytes(data), step);
  }

  // What will be bound in the run after the next one, of which step, if it is known by then: a large one is copied to
  // an accelerator while the next run computes, and read there if that step is bound. The data stay as they are until
  // they have been read. No program has this copy (runtime/staging.h says why that is sound).
  void expect(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step) {
    staging_.expect(name, micro, data, step, *streams_);
  }

  // The type that `bind` expects. Throws for an unknown name.
  bool has_input(std::string_view name) const { return staging_.type_of(name) != nullptr; }
  const TensorType& input_type(std::string_view name) const;

  // States that must not be overwritten while they are held; null: none. `held` must outlive the executor.
  void set_held(const HeldStates* held) { held_ = held; }

  // Throws when an input is unbound or a kernel fails; the message names instruction and tensor.
  void run();

  // The first instruction whose float output holds a NaN or an infinity.
  struct BadTensor {
    std::size_t instruction;
    std::string op;
    std::string tensor;
    int micro;
    std::string what;  // "NaN at element 17"
    bool from_others;  // something bad had come from another rank by then
  };
  // As `run`, looking at every output of every instruction. On a CPU each stream looks at an instruction's outputs
  // before it records the instruction's event, so this run has the order that was proved of any other. On an
  // accelerator each instruction but a send ends before the next is given: the order that was proved of the thread
  // which gives them (program/check_together.h).
  std::optional<BadTensor> run_checked();

  // In the host's memory, until the next run.
  std::span<const std::byte> output(std::string_view name, int micro = 0) const { return staging_.output(name, micro); }
  float scalar(std::string_view name, int micro = 0) const;

  // Largest end offset handed to any kernel so far, or, in another tier, to any copy.
  std::size_t highest_offset(int tier = 0) const {
    return highest_offset_[static_cast<std::size_t>(tier)].load(std::memory_order_relaxed);
  }
  // Spans of every instruction from now on; null: stop.
  void set_trace(Trace* trace);
  // Seconds spent per phase in the last run, in the order of ir::Phase; inputs and copies count as forward. On an
  // accelerator both kinds of gradients count as the first.
  const std::array<double, 4>& phase_seconds() const { return timeline_.phase_seconds(); }
  // Seconds that the compute stream spent waiting for other streams in the last run, in the same order.
  const std::array<double, 4>& wait_seconds() const { return timeline_.wait_seconds(); }
  // Of these, waiting for collectives; and the time of collectives that have no stream of their own.
  double exposed_comm_seconds() const { return timeline_.exposed_comm_seconds(); }
  double idle_seconds() const { return timeline_.idle_seconds(); }
  // Seconds that launches on the host's cores took in the last run, overlapped with the accelerator.
  double host_seconds() const { return host_seconds_; }

 private:
  void make_streams();  // executor.cpp

  // Walks: executor_walk.cpp. Work on a stream is an instruction, or the launch group that begins there.
  void run_issued();
  void synchronize(device::Streams::Set of);
  void run_captured();
  void issue(std::size_t first, std::size_t last);
  void run_from(std::size_t i);
  void run_one(std::size_t i);
  void run_group(std::size_t first);
  void execute(std::size_t i);
  void wait_for_events(std::size_t i);
  void record_event(std::size_t i);
  void note_use(std::size_t i);
  void wait_until_released(std::size_t i) const;
  void launch_on_host(std::size_t i);
  void join(device::Streams::Set except = 0);
  device::Streams::Set not_captured() const;
  void finish_streams();
  bool captures_all() const;
  bool is_ordered_here(std::int32_t event) const;
  std::size_t capture(const program::CaptureRegion& region);
  void replay(std::size_t region);

  // Looks at outputs: executor_checked.cpp. Of the instructions that were looked at, the first in the program's order.
  struct FirstBad {
    std::mutex mutex;
    std::optional<BadTensor> tensor;
    std::size_t came = SIZE_MAX;  // the first that brought something bad from another rank
  };
  std::optional<BadTensor> inspect(std::size_t i) const;
  void look_at(std::size_t i);
  void run_one_by_one();

  const program::Program& program_;
  device::Arena& arena_;
  ThreadPool& pool_;
  ProcessGroups* ranks_;
  PreparedProgram prepared_;
  Failure failure_;
  Timeline timeline_;
  Collectives collectives_;
  Staging staging_;
  std::unique_ptr<DiskCopies> disk_;         // null: nothing is copied to or from the disk
  std::vector<device::Streams::Work> work_;  // by instruction
  std::vector<std::size_t> captured_;        // by capture region: of the streams; empty: none is captured yet
  const program::CaptureRegion* capturing_ = nullptr;
  std::uint64_t runs_ = 0;
  const HeldStates* held_ = nullptr;
  FirstBad* first_bad_ = nullptr;  // null: nobody looks
  std::array<std::atomic<std::size_t>, program::kTiers> highest_offset_{};
  double host_seconds_ = 0;
  std::unique_ptr<device::Streams> streams_;  // last: their threads end before anything they use
};

}  // namespace trireme::runtime
