#include "trireme/comm/threads/world.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/comm/threads/transport.h"

namespace trireme::comm::threads {

struct WorldGroup {
  std::shared_ptr<Group> group;
  std::shared_ptr<const Tuning> tuning;
};

World::World(int ranks, const WorldOptions& options) {
  if (ranks < 1) refuse("a world of {} ranks: at least one is needed", ranks);
  if (!(options.timeout > 0)) refuse("a timeout of {} s: it must be positive", options.timeout);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) members[static_cast<std::size_t>(r)] = r;
  auto state = std::make_shared<WorldState>(ranks, parse_link(options.link), options.timeout);
  group_ = std::make_shared<WorldGroup>(
      WorldGroup{std::make_shared<Group>(std::move(state), std::move(members)), options.tuning});
}

Communicator World::communicator(int rank) {
  TRI_CHECK(rank >= 0 && rank < group_->group->size(), "rank {} of {}", rank, group_->group->size());
  return Communicator(std::make_unique<ThreadsTransport>(group_->group, rank), group_->tuning);
}

void World::abort(const std::string& why) { group_->group->world().abort(why); }

void run(int ranks, const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  World world(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;    // what went wrong
  std::exception_ptr aborted;  // or only that another rank gave up
  const auto keep = [&](std::exception_ptr& place, std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (!place) place = std::move(error);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const auto give_up = [&](const std::string& why) { world.abort(fmt::format("rank {} gave up: {}", r, why)); };
      Communicator comm = world.communicator(r);
      try {
        body(comm);
      } catch (const Aborted&) {
        keep(aborted, std::current_exception());
      } catch (const Error& e) {
        keep(first, std::make_exception_ptr(Error(e.kind(), fmt::format("rank {}: {}", r, e.message()))));
        give_up(e.message());
      } catch (const std::exception& e) {
        keep(first, std::current_exception());
        give_up(e.what());
      } catch (...) {
        keep(first, std::current_exception());
        give_up("an exception of unknown type");
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first || aborted) std::rethrow_exception(first ? first : aborted);
}

}  // namespace trireme::comm::threads
