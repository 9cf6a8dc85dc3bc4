#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/runtime/executor.h"
#include "trireme/train/compile.h"
#include "trireme/train/tier_states.h"

namespace trireme::train {

struct StepResult {
  float loss = 0;
  float grad_norm = 0;  // NaN, though finite: a step of an asynchronous pipeline that was not drained has none
  bool finite = true;
  std::optional<float> loss_scale = {};  // what the step's gradients were scaled by, where they were

  // Not finite, with a scale that can still fall: the update was withheld, and nothing is wrong.
  bool skipped() const;
};

// Of held-out rows.
struct Evaluation {
  double loss = 0;                      // mean
  std::optional<double> accuracy = {};  // of models of images: the share whose label was the most likely
  std::int64_t samples = 0;             // the mean is over so many
  std::int64_t available = 0;           // of so many that are held out
  // "held-out sample 97: input 'x', element 2 is NaN", where such a value made the loss not finite.
  std::string bad_input = {};
  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// Several steps, each rank at its own pace where the plan allows it.
struct Steps {
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t seed = 0;
  std::function<double(std::int64_t step)> lr;
  // The rows of a step, for one of this process's ranks that take rows; called by its thread.
  std::function<const data::Batch&(std::size_t rank, std::int64_t step)> batch;
  // After such a rank's step, by its thread. May be empty. The ranks of an asynchronous pipeline all get the result of
  // all, a step later.
  std::function<void(std::size_t rank, std::int64_t step, const StepResult& result)> done;
  // Whether the ranks of an asynchronous pipeline are to come together before all steps are done: asked by the first
  // rank of each process after each of its steps. May be empty.
  std::function<bool()> interrupt = {};
};

// One rank of a run: its role's programs on an arena of its own, ready to run. See Session for the whole.
class Rank {
 public:
  // `compiled` and `groups` (null: alone) must outlive it. `number` is its number in the run, `here` among the ranks of
  // this process. What the plan keeps on disk goes to a file without a name in `disk`; empty: the system's folder for
  // temporary files.
  struct Place {
    int number = 0;
    std::size_t here = 0;
    int threads = 1;
    std::filesystem::path disk = {};
    OptionNames names = key_names();  // what messages call the option that names it
    runtime::ProcessGroups* groups = nullptr;
    device::Algorithms* algorithms = nullptr;  // as SessionOptions'
  };
  Rank(const Compiled& compiled, const Place& place);
  virtual ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Whether it takes rows of the batch, and so can step, evaluate and predict by itself.
  bool takes_rows() const { return role_.takes_rows(); }
  // The rows of the global batch in which all lies that it reads in a micro-batch.
  data::RowRange rows(int micro) const;

  void initialize(std::int64_t seed);
  // Its part of one update from its rows, which are among those of `batch`. `step` counts from 0.
  virtual StepResult step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed);
  // Before a step: what the one after it will read, if that is there already. Images of it are copied to an accelerator
  // while the step computes. It stays as it is until then.
  void expect(const data::Batch& next);
  // Returns how many were done.
  virtual std::int64_t run(const Steps& steps);
  // After a step that was not finite: runs it again, looking at every output, and says which went bad first. The state
  // is as before the step, since a bad step writes nothing.
  virtual std::optional<runtime::Executor::BadTensor> explain(const data::Batch& batch, std::int64_t step, double lr,
                                                              std::int64_t seed);
  // Of one micro-batch's rows, all ranks' together.
  Evaluation evaluate(const data::Batch& batch);
  // Logits [context, vocab] of one row of tokens, or [classes] of one image's pixels.
  std::span<const float> predict(std::span<const std::int32_t> tokens);
  std::span<const float> predict(std::span<const float> pixels);
  // What a model predicts of one row of the inputs that it names itself.
  std::span<const float> predict(const data::Batch& row);

  // Prefill and decode: continues a sequence of which `position` tokens were given before, by at most as many tokens as
  // the largest compiled program takes (compiler::Prefill). Returns the logits [vocab] after the last of them.
  std::span<const float> decode(std::span<const std::int32_t> tokens, std::int64_t position);

  // State by name, in its own dtype, wherever it is: some bytes of what this rank keeps of it. Writing waits while it
  // is held. After setting, call `refresh_copies`.
  void read_state(const std::string& name, std::size_t offset, std::span<std::byte> out);
  void write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes);
  // A state in the memory of a CPU, as it lies there; empty for one that is elsewhere.
  std::span<std::byte> resident_state(const std::string& name);
  virtual void refresh_copies();

  // States that the programs must not overwrite yet.
  runtime::HeldStates& held() { return held_; }
  // Memory for a checkpoint on its way to the disk; empty when compiled without.
  std::span<std::byte> staging() {
    if (host_staging_) return {host_staging_->data(), host_staging_->bytes()};
    return {arena_.data() + role_.layout.staging, role_.layout.staging_bytes};
  }

  const Compiled& compiled() const { return compiled_; }
  const Role& role() const { return role_; }
  int number() const { return place_.number; }
  // What it stores of a state of its role.
  std::vector<ir::StoredRows> stored_rows(const ir::State& state) const;
  const runtime::ProcessGroups* groups() const { return place_.groups; }
  // Bytes sent to other ranks so far.
  std::uint64_t sent_bytes() const;
  // The executor of one of the role's programs.
  runtime::Executor& executor(std::string_view program) const;
  // Of the program by which it takes part in steps of a name: those that take no rows have one for several.
  runtime::Executor& step_executor(std::string_view step) const;
  runtime::Executor& step_executor() const { return step_executor(compiled_.steps.back().program); }
  // Largest end offset handed to any kernel so far; checks the guard bytes.
  std::size_t highest_offset() const;
  std::size_t highest_offset(int tier) const;

 protected:
  // The rows, and what randomness follows from, of every micro-batch of a step.
  void bind_micro_batches(runtime::Executor& executor, const data::Batch& batch, std::int64_t step, std::int64_t seed);
  const std::vector<int>& coordinate() const { return coordinate_; }
  bool has_lr() const { return has_lr_; }
  bool has_step_number() const { return has_step_number_; }
  std::size_t here() const { return place_.here; }

 private:
  // Tells the programs where this rank is along the mesh axes that they ask about.
  void bind_places();
  // Gives the executor of that step, ready to run.
  runtime::Executor& bind_step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed);
  ir::StateId find(const std::string& name) const;
  static std::span<const float> logits(const runtime::Executor& executor);
  // Values that are not read as they lie in the batch, by input and micro-batch.
  template <class T>
  using Kept = std::map<std::string, std::vector<std::vector<T>>>;
  template <class T>
  std::vector<T>& room(Kept<T>& kept, const std::string& name, int micro) const;
  // Of an input that goes by rows, what this rank's graph reads in a micro-batch.
  template <class V, class T>
  std::span<const T> own_part(const std::string& graph, const std::string& name, const V& values,
                              const data::Batch& batch, int micro, Kept<T>& kept);
  void bind_floats(runtime::Executor& executor, const std::string& name, std::span<const float> values, int micro,
                   std::int64_t step);
  void bind_images(runtime::Executor& executor, const std::string& graph, const data::Batch& batch, int micro);
  void bind_input(runtime::Executor& executor, const std::string& graph, const data::NamedRows& input,
                  const data::Batch& batch, int micro);
  void bind_rows(runtime::Executor& executor, const std::string& graph, const data::Batch& batch, int micro);

  const Compiled& compiled_;
  const Role& role_;
  Place place_;
  std::vector<int> coordinate_;
  int row_shard_;
  ir::Range rows_read_;
  ThreadPool pool_;
  device::Arena arena_;
  std::unique_ptr<device::Arena> host_staging_;  // null: the staging is in the arena
  std::unique_ptr<device::HostBlock> host_;
  std::unique_ptr<device::TierFile> disk_;
  std::unique_ptr<TierStates> disk_states_;
  runtime::HeldStates held_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;        // as the role's programs
  std::vector<std::int32_t> piece_;                                  // tokens that continue a sequence, padded
  std::map<std::pair<std::string, std::string>, ir::Slice> slices_;  // by graph and input: what is read of it
  Kept<float> floats_;
  Kept<std::uint16_t> narrow_;
  Kept<std::int32_t> integers_;
  std::vector<std::array<std::int64_t, 3>> rng_;  // per micro-batch: seed, step, first row
  float lr_ = 0;
  float step_number_ = 0;
  std::int64_t seed_ = 0;
  std::map<std::string, std::int64_t> places_;  // by input: the coordinate, as programs read it
  bool has_rng_ = false;
  bool has_lr_ = false;
  bool has_step_number_ = false;
  bool has_loss_scale_ = false;
  bool images_ = false;
  bool has_accuracy_ = false;
};

// The rank of that number, of the class that its role needs. `timeout`: seconds that it may wait for messages.
std::unique_ptr<Rank> make_rank(const Compiled& compiled, const Rank::Place& place, double timeout);

}  // namespace trireme::train
