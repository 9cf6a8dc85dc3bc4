#include "trireme/train/session.h"

#include <algorithm>
#include <mutex>

#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/core/worker.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/train/culprit.h"

namespace trireme::train {

// A thread for each rank, which does what it is given together with the others.
class Session::Crew {
 public:
  using Job = std::function<void(std::size_t rank)>;

  Crew(std::size_t ranks, comm::threads::World world) : world_(std::move(world)) {
    for (std::size_t r = 0; r < ranks; ++r)
      threads_.push_back(std::make_unique<Worker<const Job*>>(1, [this, r](const Job* job) { work(*job, r); }));
  }

  void run(const Job& job) {
    for (const auto& thread : threads_) thread->submit(&job);
    for (const auto& thread : threads_) thread->synchronize();
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  void work(const Job& job, std::size_t rank) {
    try {
      job(rank);
    } catch (...) {
      give_up(rank, std::current_exception());
    }
  }

  // The first failure is the cause; what other ranks throw follows from it.
  void give_up(std::size_t rank, const std::exception_ptr& error) {
    std::string why = "failed";
    std::exception_ptr named = error;
    try {
      std::rethrow_exception(error);
    } catch (Error& e) {
      named = std::make_exception_ptr(within_rank(e, static_cast<int>(rank)));
      why = e.message();
    } catch (const std::exception& e) {
      why = e.what();
    } catch (...) {
    }
    {
      const std::lock_guard lock(mutex_);
      if (first_error_) return;
      first_error_ = named;
    }
    world_.abort(why);
  }

  comm::threads::World world_;
  std::mutex mutex_;
  std::exception_ptr first_error_;
  std::vector<std::unique_ptr<Worker<const Job*>>> threads_;
};

Session::Session(const Compiled& compiled, const SessionOptions& options) : compiled_(compiled), world_(options.world) {
  if (compiled.device() == device::Kind::cuda && device::cuda::gpus().empty())
    refuse("runtime.device = \"cuda\": no CUDA device found");
  const int all = compiled.ranks();
  if (world_ != nullptr) {
    if (world_->size() != all) fail("the plan is for {} ranks, and {} were started", all, world_->size());
    groups_.resize(1);
    ranks_.resize(1);
    join(*world_, world_->rank(), 0, options);
    return;
  }
  ranks_.resize(static_cast<std::size_t>(all));
  if (all == 1) {
    ranks_.front() = std::make_unique<Rank>(compiled, Rank::Place{.threads = options.threads,
                                                                  .disk = options.disk,
                                                                  .names = options.names,
                                                                  .algorithms = options.algorithms});
    return;
  }
  groups_.resize(ranks_.size());
  comm::threads::World world(all, {.link = options.link, .timeout = options.timeout});
  crew_ = std::make_unique<Crew>(ranks_.size(), world);
  crew_->run([&](std::size_t r) {
    comm::Communicator own = world.communicator(static_cast<int>(r));
    join(own, static_cast<int>(r), r, options);
  });
}

// Rank `number` of the run takes its place in every group. Collective.
void Session::join(comm::Communicator& world, int number, std::size_t here, const SessionOptions& options) {
  if (compiled_.device() == device::Kind::cuda) {
    const auto gpus = static_cast<int>(device::cuda::gpus().size());
    device::cuda::use_gpu(number % gpus);
  }
  std::vector<runtime::ProcessGroups::Seat> seats;
  for (const program::Group& group : compiled_.groups) {
    const std::vector<int> members = compiled_.members(group, number);
    const auto own = std::find(members.begin(), members.end(), number);
    seats.push_back(
        {group.axes, members.empty() ? -1 : members.front(), static_cast<int>(own - members.begin()), group.messages});
  }
  groups_[here] = std::make_unique<runtime::ProcessGroups>(
      compiled_.role_of(number).module.mesh, compiled_.coordinate(number), world, seats,
      runtime::ProcessGroups::Options{options.allreduce, options.nccl});
  ranks_[here] = make_rank(compiled_,
                           {.number = number,
                            .here = here,
                            .threads = options.threads,
                            .disk = options.disk,
                            .names = options.names,
                            .groups = groups_[here].get(),
                            .algorithms = options.algorithms},
                           options.timeout);
}

Session::~Session() = default;

std::size_t Session::row_ranks() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->takes_rows(); }));
}

std::vector<data::RowRange> Session::rows(int micro_batches) const {
  std::vector<data::RowRange> all;
  for (const auto& rank : ranks_)
    for (int m = 0; m < micro_batches && rank->takes_rows(); ++m) all.push_back(rank->rows(m));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<data::RowRange> joined;
  for (const data::RowRange& range : all) {
    if (joined.empty() || range.first > joined.back().first + joined.back().count)
      joined.push_back(range);
    else  // ranks that differ along other axes take the same rows
      joined.back().count = std::max(joined.back().count, range.first + range.count - joined.back().first);
  }
  return joined;
}

void Session::run_each(const std::function<void(Rank&)>& body) {
  const auto run = [&](std::size_t r) { body(*ranks_[r]); };
  if (!crew_)
    run(0);
  else
    crew_->run(std::ref(run));
}

void Session::initialize(std::int64_t seed) {
  ++changes_;
  run_each([&](Rank& rank) { rank.initialize(seed); });
}

void Session::refresh_copies() {
  ++changes_;
  run_each([](Rank& rank) { rank.refresh_copies(); });
}

void Session::catch_up() {
  if (!compiled_.synchronous() && !compiled_.asynchronous_pipeline()) refresh_copies();
}

StepResult Session::step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  ++changes_;
  StepResult result;
  const auto work = [&](Rank& rank) {
    const StepResult own = rank.step(batch, step, lr, seed);
    if (&rank == ranks_.front().get()) result = own;  // all ranks have the same
  };
  run_each(std::ref(work));  // no copy, so nothing is allocated
  catch_up();
  return result;
}

void Session::expect(const data::Batch& next) {
  if (compiled_.device() == device::Kind::cpu || next.images.empty()) return;
  const auto work = [&](Rank& rank) { rank.expect(next); };
  run_each(std::ref(work));
}

std::int64_t Session::run(const Steps& steps) {
  ++changes_;
  std::int64_t done = 0;
  run_each([&](Rank& rank) {
    const std::int64_t own = rank.run(steps);
    if (&rank == ranks_.front().get()) done = own;  // as many as all the others
  });
  catch_up();
  return done;
}

std::optional<BadInput> Session::bad_input(const data::Batch& batch) {
  auto own = find_bad_input(compiled_, "micro", batch);
  return world_ == nullptr ? own : first_of(own, *world_);
}

std::optional<Culprit> Session::explain(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  if (auto input = bad_input(batch)) return Culprit{.input = std::move(input)};
  std::vector<FoundByRank> all(ranks_.size());
  run_each([&](Rank& rank) {
    const auto own = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& r) { return r.get() == &rank; });
    all[static_cast<std::size_t>(own - ranks_.begin())] = {rank.number(), rank.explain(batch, step, lr, seed)};
  });
  return world_ == nullptr ? first_of(all) : first_of(all.front(), *world_);
}

Evaluation Session::evaluate(const data::Batch& batch) {
  Evaluation result;
  each([&](Rank& rank) {
    const Evaluation own = rank.evaluate(batch);
    if (&rank == ranks_.front().get()) result = own;
  });
  return result;
}

std::span<const float> Session::predict(std::span<const std::int32_t> tokens) {
  return logits_by([&](Rank& rank) { return rank.predict(tokens); });
}

std::span<const float> Session::predict(std::span<const float> pixels) {
  return logits_by([&](Rank& rank) { return rank.predict(pixels); });
}

std::span<const float> Session::predict(const data::Batch& row) {
  return logits_by([&](Rank& rank) { return rank.predict(row); });
}

std::span<const float> Session::decode(std::span<const std::int32_t> tokens, std::int64_t position) {
  return logits_by([&](Rank& rank) { return rank.decode(tokens, position); });
}

namespace {

// The bytes of [offset, offset + size) of a state's whole that a rank stores, and where they are in its storage.
struct Overlap {
  std::size_t in_span;
  std::size_t in_storage;
  std::size_t size;
};

// Calls f(overlap) for each run of bytes that lies in both: where a rank has some columns, one for each row.
template <class F>
void each_overlap(const ir::State& state, const ir::StoredRows& stored, std::size_t offset, std::size_t size, F&& f) {
  const std::size_t element = size_of(state.type.dtype);
  const Shape whole = state.global_shape().as_rows();
  const bool columns = whole.rank() == 2;
  const std::size_t row = element * static_cast<std::size_t>(columns ? whole[1] : 1);
  const std::size_t pitch = element * static_cast<std::size_t>(ir::row_pitch(state));
  const std::size_t width = element * static_cast<std::size_t>(columns ? stored.rows.extent[1] : 1);
  const auto rows = static_cast<std::size_t>(whole.rank() == 0 ? 1 : stored.rows.extent[0]);
  const auto first = static_cast<std::size_t>(whole.rank() == 0 ? 0 : stored.rows.start[0]);
  const std::size_t column = columns ? element * static_cast<std::size_t>(stored.rows.start[1]) : 0;
  const bool joined = width == row && width == pitch;
  for (std::size_t r = 0; r < (joined ? 1 : rows); ++r) {
    const std::size_t start = (first + r) * row + column;
    const std::size_t begin = std::max(start, offset);
    const std::size_t end = std::min(start + width * (joined ? rows : 1), offset + size);
    if (begin < end)
      f(Overlap{begin - offset, (static_cast<std::size_t>(stored.first) + r) * pitch + begin - start, end - begin});
  }
}

// Calls f(rank, overlap) for ranks of this process that store some of it. Copies that follow from what others store do
// not count.
template <class F>
void each_holder(std::span<const std::unique_ptr<Rank>> ranks, const ir::State& stored, std::size_t offset,
                 std::size_t size, F&& f) {
  for (const auto& rank : ranks) {
    const ir::Module& module = rank->role().module;
    const ir::StateId id = module.find_state(stored.name);
    if (id == ir::kNone || module.state(id).saved != stored.saved) continue;
    const ir::State& state = module.state(id);
    for (const ir::StoredRows& rows : rank->stored_rows(state))
      each_overlap(state, rows, offset, size, [&](const Overlap& o) { f(*rank, o); });
  }
}

// As the role that saves it has it.
const ir::State& find_state(const Compiled& compiled, const std::string& name) {
  const ir::State* found = nullptr;
  for (const Role& role : compiled.roles)
    if (const ir::StateId id = role.module.find_state(name); id != ir::kNone && !role.module.state(id).step_local)
      if (found == nullptr || (!found->saved && role.module.state(id).saved)) found = &role.module.state(id);
  if (found == nullptr) fail("there is no state variable '{}'", name);
  return *found;
}

}  // namespace

std::vector<std::byte> Session::state(const std::string& name) {
  const ir::State& state = find_state(compiled_, name);
  std::vector<std::byte> bytes(TensorType{state.type.dtype, state.global_shape()}.bytes());
  read_state(name, 0, bytes);
  return bytes;
}

void Session::read_state(const std::string& name, std::size_t offset, std::span<std::byte> out) {
  const ir::State& state = find_state(compiled_, name);
  std::size_t found = 0;
  each_holder(ranks_, state, offset, out.size(), [&](Rank& rank, const Overlap& o) {
    rank.read_state(name, o.in_storage, out.subspan(o.in_span, o.size));
    found += o.size;
  });
  if (found < out.size()) fail("'{}' is stored in slices by other processes: save a checkpoint and read that", name);
}

void Session::write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes) {
  ++changes_;
  each_holder(ranks_, find_state(compiled_, name), offset, bytes.size(), [&](Rank& rank, const Overlap& o) {
    rank.write_state(name, o.in_storage, bytes.subspan(o.in_span, o.size));
  });
}

std::size_t Session::highest_offset() const {
  std::size_t peak = 0;
  for (const auto& rank : ranks_) peak = std::max(peak, rank->highest_offset());
  return peak;
}

std::size_t Session::highest_offset(int tier) const {
  std::size_t peak = 0;
  for (const auto& rank : ranks_) peak = std::max(peak, rank->highest_offset(tier));
  return peak;
}

std::uint64_t Session::sent_bytes() const {
  std::uint64_t most = 0;
  for (const auto& rank : ranks_)
    if (rank->takes_rows()) most = std::max(most, rank->sent_bytes());
  return most;
}

}  // namespace trireme::train
