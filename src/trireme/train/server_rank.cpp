#include "trireme/train/server_rank.h"

#include <algorithm>

#include "trireme/compiler/step_programs.h"
#include "trireme/core/error.h"
#include "trireme/passes/loss_scale.h"
#include "trireme/passes/server.h"
#include "trireme/train/async_rank.h"
#include "trireme/train/bytes_of.h"

namespace trireme::train {

namespace {

// Of the servers that meet this one, the first to whom workers push: a stage without parameters pushes nothing.
int leader_of(const Compiled& compiled, int number) {
  for (const program::Group& group : compiled.groups) {
    if (group.messages != program::kKeepers) continue;
    const std::vector<int> servers = compiled.members(group, number);
    const auto leader = std::find_if(servers.begin(), servers.end(),
                                     [&](int rank) { return !compiled.role_of(rank).exchange->pushes.empty(); });
    TRI_CHECK(leader != servers.end(), "no server is pushed anything");
    return static_cast<int>(leader - servers.begin());
  }
  return 0;
}

}  // namespace

ServerRank::ServerRank(const Compiled& compiled, const Place& place, double timeout)
    : Rank(compiled, place), exchange_(*role().exchange) {
  std::vector<runtime::Server::Table> tables;
  tables.push_back(table(exchange_));
  for (const program::Exchange& other : exchange_.others) tables.push_back(table(other));
  comm::Communicator& servers = place.groups->messages(program::kKeepers);
  server_ =
      std::make_unique<runtime::Server>(place.groups->messages(program::kExchangeMessages), std::move(tables),
                                        runtime::Server::Options{.each = exchange_.each,
                                                                 .bound = exchange_.bound,
                                                                 .timeout = timeout,
                                                                 .servers = servers.size() > 1 ? &servers : nullptr,
                                                                 .leader = leader_of(compiled, place.number)});
}

runtime::Server::Table ServerRank::table(const program::Exchange& exchange) {
  runtime::Server::Table table;
  table.slots.resize(static_cast<std::size_t>(exchange.workers));
  for (std::size_t w = 0; w < table.slots.size(); ++w)
    for (const program::Exchange::Message& m : exchange.pushes)
      table.slots[w].push_back({m.key, m.of, resident_state(passes::slot_name(m.of, static_cast<int>(w)))});
  for (const program::Exchange::Message& m : exchange.states)
    table.states.push_back({m.key, m.of, resident_state(m.of)});
  for (const program::Exchange::Message& m : exchange.results) {
    const std::span<const std::byte> bytes = executor(exchange.step).output(m.of);
    table.results.push_back({m.key, m.of, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  return table;
}

void ServerRank::refresh_copies() {
  Rank::refresh_copies();
  server_->send_states();
}

StepResult ServerRank::step(const data::Batch&, std::int64_t step, double lr, std::int64_t) {
  return serve(step, 1, [&](std::int64_t) { return lr; });
}

std::int64_t ServerRank::run(const Steps& steps) {
  serve(steps.first, steps.count, steps.lr);
  return steps.count;
}

std::optional<runtime::Executor::BadTensor> ServerRank::explain(const data::Batch&, std::int64_t step, double lr,
                                                                std::int64_t) {
  serve(step, 1, [&](std::int64_t) { return lr; });
  return std::nullopt;
}

StepResult ServerRank::serve(std::int64_t first, std::int64_t count,
                             const std::function<double(std::int64_t step)>& lr) {
  const std::int64_t updates_per_step = exchange_.each ? exchange_.workers : 1;
  runtime::Executor* last = &executor(exchange_.step);
  const bool scaled = role().module.find_state(passes::LossScale::kState) != ir::kNone;
  StepResult result;
  updates_ = 0;
  const auto run = [&](int worker, std::int64_t step) {
    const std::string& name = compiled().step_program(first + step);
    const program::Exchange& exchange = exchange_.of(name);
    // What surrounds the updates of a step is done once, with the first of them.
    const bool begins = first + step > around_;
    around_ = std::max(around_, first + step);
    const compiler::AroundUpdate around = begins ? compiler::around_update(name) : compiler::AroundUpdate{};
    for (const std::string& graph : around.before) run_graph(graph);
    runtime::Executor& update = executor(exchange.step);
    lr_ = static_cast<float>(lr(first + step));
    if (update.has_input("lr")) update.bind("lr", 0, one(lr_));  // not where nothing is kept
    step_number_ = static_cast<float>(first * updates_per_step + ++updates_);
    if (update.has_input("step")) update.bind("step", 0, one(step_number_));
    if (worker >= 0)
      for (const program::Exchange::Message& m : exchange.pushes)
        update.bind(m.of, 0, std::span<const std::byte>(resident_state(passes::slot_name(m.of, worker))));
    // The update chooses the next scale; workers report the one that they had.
    if (scaled) result.loss_scale = own_loss_scale();
    update.run();
    last = &update;
    for (const std::string& graph : around.behind) run_graph(graph);
  };
  server_->serve(count, run, [&](std::int64_t step) {
    const program::Exchange* table = &exchange_.of(compiled().step_program(first + step));
    return table == &exchange_ ? 0 : static_cast<std::size_t>(table - exchange_.others.data()) + 1;
  });
  result.loss = last->scalar("loss");
  result.grad_norm = last->scalar("grad_norm");
  result.finite = last->scalar("finite") != 0;
  return result;
}

float ServerRank::own_loss_scale() {
  float scale = 0;
  read_state(passes::LossScale::kState, 0, std::as_writable_bytes(std::span(&scale, 1)));
  return scale;
}

void ServerRank::run_graph(const std::string& graph) {
  if (role().find(graph) != nullptr) executor(graph).run();
}

std::unique_ptr<Rank> make_rank(const Compiled& compiled, const Rank::Place& place, double timeout) {
  if (compiled.role_of(place.number).exchange) return std::make_unique<ServerRank>(compiled, place, timeout);
  if (compiled.role_of(place.number).in_flight) return std::make_unique<AsyncRank>(compiled, place);
  return std::make_unique<Rank>(compiled, place);
}

}  // namespace trireme::train
