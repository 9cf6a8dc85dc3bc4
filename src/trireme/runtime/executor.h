#pragma once
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/device/arena.h"
#include "trireme/device/queue.h"
#include "trireme/device/stream.h"
#include "trireme/device/tier_file.h"
#include "trireme/program/program.h"
#include "trireme/runtime/held_states.h"
#include "trireme/runtime/process_groups.h"
#include "trireme/runtime/trace.h"

namespace trireme::runtime {

// Memory beside the device's own; null: nothing is kept there.
struct Tiers {
  device::HostBlock* host = nullptr;
  device::TierFile* disk = nullptr;
};

// Runs one program, again and again, on an arena that holds its state. Everything is prepared when it is constructed:
// a run allocates nothing (but for what oneDNN needs to remember a call's arguments) and looks at no graph.
//
//   Executor step(program, arena, pool);
//   step.bind("tokens", micro, tokens);   // read during run()
//   step.run();
//   float loss = step.scalar("loss");
//
// On a CPU the compute stream is the caller's thread and the others are threads of their own. A device beside it gets
// the instructions in program order, each stream's in a lane of its queue; the program's capture regions are captured
// in the second run and replayed from then on.
class Executor {
 public:
  // `program`, `arena`, `pool`, `tiers` and `ranks` must outlive the executor. The arena is of the program's device and
  // holds at least program.arena_bytes, the tiers what the program keeps there, and the pool has at most
  // program.threads threads. `ranks` is this rank's place among those that run the program together (null: alone).
  Executor(const program::Program& program, device::Arena& arena, ThreadPool& pool, const Tiers& tiers = {},
           ProcessGroups* ranks = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Where the graph input `name` of a micro-batch is read from. Throws for an unknown name or a wrong size.
  void bind(std::string_view name, int micro, std::span<const std::byte> data);
  template <class T>
  void bind(std::string_view name, int micro, std::span<const T> data) {
    bind(name, micro, std::as_bytes(data));
  }

  // The type that `bind` expects. Throws for an unknown name.
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
  };
  // As `run`, one instruction after another, looking at every output of every instruction.
  std::optional<BadTensor> run_checked();

  // In the host's memory, until the next run.
  std::span<const std::byte> output(std::string_view name, int micro = 0) const;
  float scalar(std::string_view name, int micro = 0) const;

  // Largest end offset handed to any kernel so far, or, in another tier, to any copy.
  std::size_t measured_peak(int tier = 0) const {
    return measured_peak_[static_cast<std::size_t>(tier)].load(std::memory_order_relaxed);
  }
  // Spans of every instruction from now on; null: stop.
  void set_trace(Trace* trace);
  // Seconds spent per phase in the last run, in the order of ir::Phase; inputs and copies count as forward. On a device
  // beside the CPU both kinds of gradients count as the first.
  const std::array<double, 4>& phase_seconds() const { return phase_seconds_; }
  // Seconds that the compute stream spent waiting for other streams in the last run, in the same order.
  const std::array<double, 4>& wait_seconds() const { return wait_seconds_; }
  // Of these, waiting for collectives; and the time of collectives that have no stream of their own.
  double exposed_comm_seconds() const { return exposed_comm_; }
  // Seconds that launches on the host's cores took in the last run, beside the device.
  double host_seconds() const { return host_seconds_; }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  struct Prepared {
    device::Kernel* kernel = nullptr;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    std::array<std::size_t, program::kTiers> end_offset{};
    std::size_t tier_offset = 0;  // of a store or load, in the file
    std::vector<ir::StateId> overwrites;
    std::vector<Copy> copies;             // before an all_reduce that is not in place
    std::vector<comm::Segment> segments;  // of an all_reduce
    std::vector<comm::Cut> cuts;          // of other collectives
    comm::Communicator* group = nullptr;
    comm::DeviceGroup* device_group = nullptr;
    int peer = 0;  // of a push or pull, in the group
    int key = 0;
    bool waits_for_others = false;  // for a collective, that is
    std::uint32_t label = 0;
    const std::byte* bound = nullptr;
    std::byte* staged = nullptr;  // where a device beside the CPU reads what is bound
    bool ahead = false;           // a large input before all else: copied before a recording is replayed
  };

  void prepare(std::size_t i, std::unordered_map<std::string, device::Kernel*>& cache);
  void execute(std::size_t i);
  void move(std::size_t i);
  bool on_disk(std::size_t i) const;
  void prepare_collective(std::size_t i);
  void combine(std::size_t i);
  void exchange(std::size_t i);
  void prepare_message(std::size_t i);
  void send_or_receive(std::size_t i);
  void execute_guarded(std::size_t i);
  void prepare_launch(std::size_t i);
  // On a copy stream: begins copy i once its events are there, leaving others on their way.
  void begin_copy(std::size_t i);
  void end_copies(std::size_t stream, std::size_t most_left);
  bool can_join(std::size_t i) const;
  void record_failure(std::size_t i);
  void wait_for_events(std::size_t i) const;
  void record_event(std::size_t i);
  void check_bound() const;
  std::optional<BadTensor> inspect(std::size_t i) const;

  // With a queue: executor_device.cpp.
  void prepare_queue();
  void prepare_disk();
  void find_groups();
  const std::byte* host_source(std::size_t i) const;
  void copy_ahead();
  void make_ready();
  void issue(std::size_t i);
  void issue(std::size_t first, std::size_t last);
  void issue_outputs();
  void await(std::size_t i);
  void announce(std::size_t i);
  void issue_move(std::size_t i);
  void issue_collective(std::size_t i);
  void issue_group(std::size_t first);
  void launch_on_host(std::size_t i);
  void read_times();
  std::vector<std::byte> on_host(const void* data, std::size_t bytes) const;

  // And executor_capture.cpp.
  bool recorded_here(std::int32_t event) const;
  bool captures_all() const;
  std::size_t capture(const program::CaptureRegion& region);
  void replay(std::size_t region);
  void run_on_device();

  std::size_t lane_of(std::size_t i) const { return static_cast<std::size_t>(program_.instructions[i].stream); }

  const program::Program& program_;
  device::Arena& arena_;
  Tiers tiers_;
  ThreadPool& pool_;
  ProcessGroups* ranks_;
  ThreadPool side_pool_{1};  // streams beside the compute stream run their kernels on their own thread
  ThreadPool host_pool_{1};  // and so does the host's stream of a program for the CPU
  std::vector<std::shared_ptr<device::Kernel>> kernels_;
  std::vector<Prepared> prepared_;
  std::vector<std::unique_ptr<device::TierChannel>> channels_;  // by stream: for those that copy to or from the disk
  // By stream: the copies on their way, with when they began; used by the stream's thread alone.
  struct OnItsWay {
    std::size_t instruction = 0;
    Trace::Clock::time_point begin;
  };
  std::vector<std::vector<OnItsWay>> on_their_way_;
  std::vector<std::size_t> last_copy_;                    // by stream: an instruction
  std::vector<std::unique_ptr<device::Stream>> streams_;  // [0] is the caller's thread: null
  std::vector<device::Event> events_;
  std::vector<bool> comm_events_;  // those that collectives record
  std::uint64_t runs_ = 0;
  std::unique_ptr<device::Queue> queue_;        // null: a CPU
  std::unique_ptr<device::HostBlock> staging_;  // inputs, and outputs that are small enough to come by themselves
  // Where the time is taken: before these instructions of the compute stream, and at the end. While there is a trace,
  // before and behind every instruction instead.
  std::vector<std::size_t> marks_;
  // By stream: memory of the host between the device and the disk; and one part of a copy that passes through it.
  std::vector<std::unique_ptr<device::HostBlock>> bounces_;
  struct DiskPart {
    Executor* executor = nullptr;
    std::size_t instruction = 0;
    std::size_t offset = 0;  // on the disk
    std::span<std::byte> bytes;
  };
  static void pass_disk(const DiskPart& part);
  std::vector<std::vector<DiskPart>> disk_parts_;  // by instruction
  // What a launch on the host is told when the device comes to it.
  struct HostCall {
    Executor* executor = nullptr;
    std::size_t instruction = 0;
  };
  std::vector<HostCall> host_calls_;             // by instruction
  std::vector<const std::byte*> early_outputs_;  // by number: in the staging; null: fetched when asked for
  mutable std::vector<std::vector<std::byte>> fetched_;
  std::vector<std::size_t> together_;  // by instruction: launches done at once from here on; 0: with one before
  std::size_t group_events_ = 0;       // of the queue: the first of those that collectives use
  std::vector<std::size_t> captured_;  // of the queue, by capture region; empty: none is captured yet
  const program::CaptureRegion* capturing_ = nullptr;
  std::array<std::atomic<std::size_t>, program::kTiers> measured_peak_{};
  std::array<double, 4> phase_seconds_{};
  std::array<double, 4> wait_seconds_{};
  double exposed_comm_ = 0;
  double host_seconds_ = 0;
  Trace* trace_ = nullptr;
  const HeldStates* held_ = nullptr;
  std::mutex failure_mutex_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

}  // namespace trireme::runtime
