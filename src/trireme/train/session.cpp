#include "trireme/train/session.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"

namespace trireme::train {

// A thread for each rank, which does what it is given together with the others.
class Session::Crew {
 public:
  using Job = std::function<void(std::size_t rank)>;

  Crew(std::size_t ranks, comm::threads::World world) : world_(std::move(world)) {
    for (std::size_t r = 0; r < ranks; ++r) threads_.emplace_back([this, r] { work(r); });
  }
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void run(const Job& job) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    left_ = threads_.size();
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_ == 0; });
    job_ = nullptr;
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  void work(std::size_t rank) {
    std::uint64_t done = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || round_ != done; });
      if (stopping_) return;
      done = round_;
      const Job& job = *job_;
      lock.unlock();
      try {
        job(rank);
      } catch (...) {
        give_up(rank, std::current_exception());
      }
      lock.lock();
      if (--left_ == 0) changed_.notify_all();
    }
  }

  // Whoever fails first is the cause; what the others throw then follows from it.
  void give_up(std::size_t rank, const std::exception_ptr& error) {
    std::string why = "failed";
    std::exception_ptr named = error;
    try {
      std::rethrow_exception(error);
    } catch (Error& e) {
      named = std::make_exception_ptr(e.within(fmt::format("rank {}", rank)));
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
  std::condition_variable changed_;
  const Job* job_ = nullptr;
  std::size_t left_ = 0;
  std::uint64_t round_ = 0;
  bool stopping_ = false;
  std::exception_ptr first_error_;
  std::vector<std::thread> threads_;
};

Session::Session(const Compiled& compiled, const SessionOptions& options) : compiled_(compiled), world_(options.world) {
  const ir::Mesh& mesh = compiled.module.mesh;
  if (world_ != nullptr) {
    memberships_.push_back(
        std::make_unique<runtime::Membership>(mesh, *world_, comm::parse_algorithm(options.allreduce)));
    ranks_.push_back(std::make_unique<Rank>(compiled, options.threads, options.disk, memberships_.front().get()));
    return;
  }
  const auto ranks = static_cast<std::size_t>(mesh.ranks());
  ranks_.resize(ranks);
  if (ranks == 1) {
    ranks_.front() = std::make_unique<Rank>(compiled, options.threads, options.disk, nullptr);
    return;
  }
  memberships_.resize(ranks);
  comm::threads::World world(static_cast<int>(ranks), {.link = options.link, .timeout = options.timeout});
  crew_ = std::make_unique<Crew>(ranks, world);
  const comm::Algorithm algorithm = comm::parse_algorithm(options.allreduce);
  crew_->run([&](std::size_t r) {
    comm::Communicator own = world.communicator(static_cast<int>(r));
    memberships_[r] = std::make_unique<runtime::Membership>(mesh, own, algorithm);
    ranks_[r] = std::make_unique<Rank>(compiled, options.threads, options.disk, memberships_[r].get());
  });
}

Session::~Session() = default;

void Session::run_each(const std::function<void(Rank&)>& body) {
  if (!crew_)
    body(*ranks_.front());
  else
    crew_->run([&](std::size_t r) { body(*ranks_[r]); });
}

void Session::initialize(std::int64_t seed) {
  each([&](Rank& rank) { rank.initialize(seed); });
}

void Session::derive() {
  each([](Rank& rank) { rank.derive(); });
}

StepResult Session::step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  StepResult result;
  each([&](Rank& rank) {
    const StepResult own = rank.step(batch, step, lr, seed);
    if (&rank == ranks_.front().get()) result = own;  // all ranks have the same
  });
  return result;
}

std::optional<runtime::Executor::BadTensor> Session::explain(const data::Batch& batch, std::int64_t step, double lr,
                                                             std::int64_t seed) {
  std::mutex mutex;
  std::optional<runtime::Executor::BadTensor> first;
  each([&](Rank& rank) {
    const auto bad = rank.explain(batch, step, lr, seed);
    const std::lock_guard lock(mutex);
    if (bad && (!first || bad->instruction < first->instruction)) first = bad;
  });
  return first;
}

float Session::evaluate(const data::Batch& batch) {
  float loss = 0;
  each([&](Rank& rank) {
    const float own = rank.evaluate(batch);
    if (&rank == ranks_.front().get()) loss = own;
  });
  return loss;
}

std::span<const float> Session::predict(std::span<const std::int32_t> tokens) {
  std::span<const float> logits;
  each([&](Rank& rank) {
    const std::span<const float> own = rank.predict(tokens);
    if (&rank == ranks_.front().get()) logits = own;
  });
  return logits;
}

std::span<const float> Session::advance(std::span<const std::int32_t> tokens, std::int64_t position) {
  std::span<const float> logits;
  each([&](Rank& rank) {
    const std::span<const float> own = rank.advance(tokens, position);
    if (&rank == ranks_.front().get()) logits = own;
  });
  return logits;
}

const ir::State& Session::find(const std::string& name) const {
  const ir::StateId id = compiled_.module.find_state(name);
  if (id == ir::kNone || compiled_.module.state(id).step_local) fail("there is no state variable '{}'", name);
  return compiled_.module.state(id);
}

std::vector<std::byte> Session::state(const std::string& name) {
  const ir::State& state = find(name);
  std::vector<std::byte> bytes(TensorType{state.type.dtype, state.global_shape()}.bytes());
  read_state(name, 0, bytes);
  return bytes;
}

namespace {

// The bytes of [offset, offset + size) of a state's whole that a rank keeps, and where they are in its part.
struct Overlap {
  std::size_t in_span;
  std::size_t in_part;
  std::size_t size;
};
Overlap overlap(const ir::State& state, const Rank& rank, std::size_t offset, std::size_t size) {
  if (state.whole.rank() == 0) return {0, offset, size};
  const std::size_t part = state.type.bytes();
  const std::size_t first = part * static_cast<std::size_t>(rank.place(state.sharding.dims.front().front()));
  const std::size_t begin = std::max(first, offset);
  const std::size_t end = std::min(first + part, offset + size);
  return begin >= end ? Overlap{0, 0, 0} : Overlap{begin - offset, begin - first, end - begin};
}

}  // namespace

void Session::read_state(const std::string& name, std::size_t offset, std::span<std::byte> out) {
  const ir::State& state = find(name);
  if (world_ != nullptr && state.whole.rank() > 0)
    fail("'{}' is kept in parts by other processes: save a checkpoint and read that", name);
  for (const auto& rank : ranks_) {
    const Overlap o = overlap(state, *rank, offset, out.size());
    if (o.size > 0) rank->read_state(name, o.in_part, out.subspan(o.in_span, o.size));
    if (state.whole.rank() == 0) return;
  }
}

void Session::write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes) {
  const ir::State& state = find(name);
  for (const auto& rank : ranks_) {
    const Overlap o = overlap(state, *rank, offset, bytes.size());
    if (o.size > 0) rank->write_state(name, o.in_part, bytes.subspan(o.in_span, o.size));
  }
}

std::size_t Session::measured_peak() const {
  std::size_t peak = 0;
  for (const auto& rank : ranks_) peak = std::max(peak, rank->measured_peak());
  return peak;
}

std::size_t Session::measured_tier_peak(int tier) const {
  std::size_t peak = 0;
  for (const auto& rank : ranks_) peak = std::max(peak, rank->measured_tier_peak(tier));
  return peak;
}

std::uint64_t Session::sent_bytes() const {
  std::uint64_t most = 0;
  for (const auto& rank : ranks_) most = std::max(most, rank->sent_bytes());
  return most;
}

}  // namespace trireme::train
