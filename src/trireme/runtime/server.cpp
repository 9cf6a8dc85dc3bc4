#include "trireme/runtime/server.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "trireme/core/error.h"

namespace trireme::runtime {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t index(int worker) { return static_cast<std::size_t>(worker); }

}  // namespace

Server::Server(comm::Communicator& everyone, std::vector<Table> tables, Options options)
    : everyone_(everyone), tables_(std::move(tables)), options_(options), workers_(tables_.front().slots.size()) {
  std::size_t most = 0;
  for (const Table& table : tables_) {
    std::size_t bytes = 0;
    for (const Message& m : table.results) bytes += m.bytes.size();
    most = std::max(most, bytes);
  }
  for (Worker& worker : workers_) worker.results.resize(most);
}

void Server::serve(std::int64_t steps, const Update& update, Choose table) {
  choose_ = std::move(table);
  for (Worker& worker : workers_) worker.steps = 0;
  options_.each ? serve_each(steps, update) : serve_together(steps, update);
}

const std::vector<Server::Message>& Server::slots(int worker) const {
  return tables_[workers_[index(worker)].table].slots[index(worker)];
}

void Server::receive(int worker) {
  Worker& w = workers_[index(worker)];
  w.pushes.clear();
  w.arrived = 0;
  w.table = choose_ ? choose_(w.steps) : 0;
  for (const Message& m : slots(worker)) w.pushes.push_back(everyone_.start_recv(m.bytes, worker, m.key));
}

void Server::await(int worker) {
  Worker& w = workers_[index(worker)];
  for (; w.arrived < w.pushes.size(); ++w.arrived) try {
      w.pushes[w.arrived].wait();
    } catch (Error& e) {
      throw e.within(fmt::format("waiting for worker {} to push '{}'", worker, slots(worker)[w.arrived].of));
    }
}

bool Server::all_arrived(int worker) {
  Worker& w = workers_[index(worker)];
  while (w.arrived < w.pushes.size() && w.pushes[w.arrived].test()) ++w.arrived;
  return w.arrived == w.pushes.size() && !w.pushes.empty();
}

void Server::keep_results(int worker) {
  Worker& w = workers_[index(worker)];
  w.answer = w.table;
  std::byte* to = w.results.data();
  for (const Message& m : tables_[w.answer].results) {
    std::memcpy(to, m.bytes.data(), m.bytes.size());
    to += m.bytes.size();
  }
}

void Server::answer(std::span<const int> workers, bool with_results) {
  std::vector<comm::Request> sent;
  std::vector<std::pair<int, const Message*>> about;
  const auto send = [&](int worker, const Message& m, std::span<const std::byte> bytes) {
    sent.push_back(everyone_.start_send(bytes, worker, m.key));
    about.emplace_back(worker, &m);
  };
  for (const int worker : workers) {
    const Table& table = tables_[with_results ? workers_[index(worker)].answer : 0];
    for (const Message& m : table.states) send(worker, m, m.bytes);
    std::span<const std::byte> kept = workers_[index(worker)].results;
    for (const Message& m : table.results) {
      if (with_results) send(worker, m, kept.first(m.bytes.size()));
      kept = kept.subspan(m.bytes.size());
    }
  }
  for (std::size_t i = 0; i < sent.size(); ++i) try {
      sent[i].wait();
    } catch (Error& e) {
      throw e.within(fmt::format("waiting for worker {} to pull '{}'", about[i].first, about[i].second->of));
    }
}

void Server::send_states() {
  std::vector<int> all;
  for (std::size_t w = 0; w < workers_.size(); ++w) all.push_back(static_cast<int>(w));
  answer(all, false);
}

void Server::serve_together(std::int64_t steps, const Update& update) {
  std::vector<int> all;
  for (std::size_t w = 0; w < workers_.size(); ++w) all.push_back(static_cast<int>(w));
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const int w : all) receive(w);
    for (const int w : all) await(w);
    update(-1, step);
    for (const int w : all) {
      keep_results(w);
      ++workers_[index(w)].steps;
    }
    answer(all, true);
  }
}

void Server::serve_each(std::int64_t steps, const Update& update) {
  const int workers = static_cast<int>(workers_.size());
  for (int w = 0; w < workers && steps > 0; ++w) receive(w);
  const bool leads = options_.servers == nullptr || options_.servers->rank() == options_.leader;
  for (std::int64_t i = 0; i < steps * workers; ++i)
    apply(broadcast_turn(leads ? next_pushed(steps) : -1), steps, update);
}

void Server::apply(int worker, std::int64_t steps, const Update& update) {
  Worker& w = workers_[index(worker)];
  await(worker);
  update(worker, w.steps);
  keep_results(worker);
  ++w.steps;
  w.waits = true;
  // Its slots are free again before it knows.
  w.pushes.clear();
  if (w.steps < steps) receive(worker);
  answer_waiting();
}

// The leader says whose turn it is.
int Server::broadcast_turn(int worker) {
  if (options_.servers == nullptr) return worker;
  auto turn = static_cast<std::int32_t>(worker);
  const std::span<std::int32_t> one(&turn, 1);
  if (options_.servers->rank() != options_.leader)
    options_.servers->recv(std::as_writable_bytes(one), options_.leader);
  else
    for (int s = 0; s < options_.servers->size(); ++s)
      if (s != options_.leader) options_.servers->send(std::as_bytes(one), s);
  return turn;
}

// A worker all of whose pushes of a step are here; those that were served least come first.
int Server::next_pushed(std::int64_t steps) {
  constexpr std::chrono::microseconds kShortest{20};
  constexpr std::chrono::microseconds kLongest{500};
  const auto begin = Clock::now();
  for (auto pause = kShortest;; pause = std::min(pause * 2, kLongest)) {
    int found = -1;
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w)
      if (const std::int64_t done = workers_[index(w)].steps;
          done < steps && all_arrived(w) && (found < 0 || done < workers_[index(found)].steps))
        found = w;
    if (found >= 0) return found;
    if (std::chrono::duration<double>(Clock::now() - begin).count() > options_.timeout)
      fail("no worker has pushed all of a step for {} s; missing are {}", options_.timeout, missing());
    std::this_thread::sleep_for(pause);
  }
}

void Server::answer_waiting() {
  std::int64_t slowest = workers_.front().steps;
  for (const Worker& worker : workers_) slowest = std::min(slowest, worker.steps);
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    const std::int64_t lead = worker.steps - slowest;
    if (!worker.waits || (options_.bound && lead > *options_.bound)) continue;
    largest_lead_ = std::max(largest_lead_, lead);
    const int one = static_cast<int>(w);
    answer(std::span(&one, 1), true);
    worker.waits = false;
  }
  TRI_CHECK(!options_.bound || largest_lead_ <= *options_.bound, "a worker was {} steps ahead, where {} are allowed",
            largest_lead_, *options_.bound);
}

std::string Server::missing() const {
  std::vector<std::string> parts;
  for (std::size_t w = 0; w < workers_.size(); ++w)
    if (const Worker& worker = workers_[w]; worker.arrived < worker.pushes.size())
      parts.push_back(fmt::format("'{}' of worker {}", slots(static_cast<int>(w))[worker.arrived].of, w));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace trireme::runtime
