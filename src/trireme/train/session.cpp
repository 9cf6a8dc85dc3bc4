#include "trireme/train/session.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"

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
  const auto workers = static_cast<std::size_t>(compiled.module.mesh.ranks());
  const auto all = static_cast<std::size_t>(compiled.ranks());
  if (world_ != nullptr) {
    const auto own = static_cast<std::size_t>(world_->rank());
    memberships_.resize(1);
    own < workers ? ranks_.resize(1) : servers_.resize(1);
    join(*world_, own, 0, options);
    return;
  }
  ranks_.resize(workers);
  servers_.resize(all - workers);
  if (all == 1) {
    ranks_.front() = std::make_unique<Rank>(compiled, options.threads, options.disk, nullptr);
    return;
  }
  memberships_.resize(all);
  comm::threads::World world(static_cast<int>(all), {.link = options.link, .timeout = options.timeout});
  crew_ = std::make_unique<Crew>(all, world);
  crew_->run([&](std::size_t r) {
    comm::Communicator own = world.communicator(static_cast<int>(r));
    join(own, r, r, options);
  });
}

// Rank `number` of the world takes its place: among the workers, who come first, or among the servers. Collective.
void Session::join(comm::Communicator& world, std::size_t number, std::size_t here, const SessionOptions& options) {
  const comm::Algorithm algorithm = comm::parse_algorithm(options.allreduce);
  const auto workers = static_cast<std::size_t>(compiled_.module.mesh.ranks());
  const bool serves = number >= workers;
  if (compiled_.device == device::Kind::cuda) {
    const auto gpus = static_cast<int>(device::cuda::gpus().size());
    if (gpus == 0) refuse("runtime.device = \"cuda\": no GPU is to be seen here");
    device::cuda::use_gpu(static_cast<int>(number) % gpus);
  }
  const Compiled& own = serves ? compiled_.servers.at(number - workers) : compiled_;
  std::unique_ptr<runtime::Membership>& membership = memberships_[here];
  if (compiled_.servers.empty()) {
    membership = std::make_unique<runtime::Membership>(own.module.mesh, world, algorithm);
    membership->nccl = options.nccl;
  } else {
    std::unique_ptr<comm::Communicator> everyone = world.split(0);
    const std::unique_ptr<comm::Communicator> alike = world.split(serves ? 1 : 0);
    membership = std::make_unique<runtime::Membership>(own.module.mesh, *alike, algorithm);
    membership->everyone = std::move(everyone);
    membership->first_peer = static_cast<int>(workers);
  }
  if (serves)
    servers_[world_ == nullptr ? number - workers : 0] =
        std::make_unique<ServerRank>(own, options.threads, options.disk, *membership, options.timeout);
  else
    ranks_[here] = std::make_unique<Rank>(own, options.threads, options.disk, membership.get());
}

Session::~Session() = default;

void Session::run_each(const std::function<void(Rank&)>& body, const std::function<void(ServerRank&)>& serve) {
  const auto run = [&](std::size_t r) {
    if (r < ranks_.size())
      body(*ranks_[r]);
    else
      serve(*servers_[r - ranks_.size()]);
  };
  if (!crew_)
    run(0);
  else
    crew_->run(std::ref(run));
}

void Session::initialize(std::int64_t seed) {
  run_each([&](Rank& rank) { rank.initialize(seed); }, [&](ServerRank& server) { server.initialize(seed); });
}

void Session::derive() {
  run_each([](Rank& rank) { rank.derive(); }, [](ServerRank& server) { server.derive(); });
}

StepResult Session::step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  StepResult result;
  const auto work = [&](Rank& rank) {
    const StepResult own = rank.step(batch, step, lr, seed);
    if (&rank == ranks_.front().get()) result = own;  // all ranks have the same
  };
  const auto serve = [&](ServerRank& server) {
    const StepResult own = server.serve(step, 1, [&](std::int64_t) { return lr; });
    if (ranks_.empty()) result = own;
  };
  run_each(std::ref(work), std::ref(serve));  // no copies, so nothing is allocated
  if (compiled_.mode && compiled_.mode->each) derive();
  return result;
}

void Session::run(const Steps& steps) {
  run_each(
      [&](Rank& rank) {
        const auto worker = static_cast<std::size_t>(
            std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& r) { return r.get() == &rank; }) -
            ranks_.begin());
        for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
          const StepResult result = rank.step(steps.batch(worker, step), step, steps.lr(step), steps.seed);
          if (steps.done) steps.done(worker, step, result);
        }
      },
      [&](ServerRank& server) { server.serve(steps.first, steps.count, steps.lr); });
  if (compiled_.mode && compiled_.mode->each) derive();
}

std::optional<runtime::Executor::BadTensor> Session::explain(const data::Batch& batch, std::int64_t step, double lr,
                                                             std::int64_t seed) {
  std::mutex mutex;
  std::optional<runtime::Executor::BadTensor> first;
  run_each(
      [&](Rank& rank) {
        const auto bad = rank.explain(batch, step, lr, seed);
        const std::lock_guard lock(mutex);
        if (bad && (!first || bad->instruction < first->instruction)) first = bad;
      },
      [&](ServerRank& server) { server.serve(step, 1, [&](std::int64_t) { return lr; }); });
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

bool Session::kept_by_servers(const std::string& name) const {
  return std::any_of(compiled_.servers.begin(), compiled_.servers.end(),
                     [&](const Compiled& server) { return server.module.find_state(name) != ir::kNone; });
}

const ir::State& Session::find(const std::string& name) const {
  const ir::Module* keeper = &compiled_.module;
  const auto server = std::find_if(compiled_.servers.begin(), compiled_.servers.end(),
                                   [&](const Compiled& c) { return c.module.find_state(name) != ir::kNone; });
  if (server != compiled_.servers.end()) keeper = &server->module;
  const ir::StateId id = keeper->find_state(name);
  if (id == ir::kNone || keeper->state(id).step_local) fail("there is no state variable '{}'", name);
  return keeper->state(id);
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
  const std::size_t row = part / static_cast<std::size_t>(state.type.shape[0]);
  const std::size_t first = row * static_cast<std::size_t>(rank.first_row(state));
  const std::size_t begin = std::max(first, offset);
  const std::size_t end = std::min(first + part, offset + size);
  return begin >= end ? Overlap{0, 0, 0} : Overlap{begin - offset, begin - first, end - begin};
}

}  // namespace

// Calls f(rank, overlap) for those of this process that keep some of it. Copies that follow from what others keep do
// not count.
template <class F>
void Session::each_keeper(const std::string& name, std::size_t offset, std::size_t size, F&& f) const {
  const auto visit = [&](Rank& rank) {
    const ir::Module& module = rank.compiled().module;
    const ir::StateId id = module.find_state(name);
    if (id == ir::kNone) return;
    if (const Overlap o = overlap(module.state(id), rank, offset, size); o.size > 0) f(rank, o);
  };
  if (kept_by_servers(name))
    for (const auto& server : servers_) visit(server->rank());
  else
    for (const auto& rank : ranks_) visit(*rank);
}

void Session::read_state(const std::string& name, std::size_t offset, std::span<std::byte> out) {
  const ir::State& state = find(name);
  if (world_ != nullptr && (state.whole.rank() > 0 || kept_by_servers(name)))
    fail("'{}' is kept in parts by other processes: save a checkpoint and read that", name);
  each_keeper(name, offset, out.size(),
              [&](Rank& rank, const Overlap& o) { rank.read_state(name, o.in_part, out.subspan(o.in_span, o.size)); });
}

void Session::write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes) {
  find(name);
  each_keeper(name, offset, bytes.size(), [&](Rank& rank, const Overlap& o) {
    rank.write_state(name, o.in_part, bytes.subspan(o.in_span, o.size));
  });
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
