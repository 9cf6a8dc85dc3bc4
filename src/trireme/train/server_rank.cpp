#include "trireme/train/server_rank.h"

#include "trireme/core/error.h"
#include "trireme/passes/server.h"
#include "trireme/train/async_rank.h"
#include "trireme/train/bytes_of.h"

namespace trireme::train {
namespace {

constexpr const char* kUpdate = "step";  // what a server does in a step

}  // namespace

ServerRank::ServerRank(const Compiled& compiled, const Place& place, double timeout)
    : Rank(compiled, place), exchange_(*role().exchange) {
  using Message = runtime::Server::Message;
  std::vector<std::vector<Message>> slots(static_cast<std::size_t>(exchange_.workers));
  for (std::size_t w = 0; w < slots.size(); ++w)
    for (const program::Exchange::Message& m : exchange_.pushes)
      slots[w].push_back({m.key, m.of, resident_state(passes::slot_name(m.of, static_cast<int>(w)))});
  std::vector<Message> states;
  for (const program::Exchange::Message& m : exchange_.states) states.push_back({m.key, m.of, resident_state(m.of)});
  std::vector<Message> results;
  for (const program::Exchange::Message& m : exchange_.results) {
    const std::span<const std::byte> bytes = executor(kUpdate).output(m.of);
    results.push_back({m.key, m.of, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  comm::Communicator& servers = place.groups->messages(program::kKeepers);
  server_ = std::make_unique<runtime::Server>(
      place.groups->messages(program::kExchangeMessages), std::move(slots), std::move(states), std::move(results),
      runtime::Server::Options{.each = exchange_.each,
                               .bound = exchange_.bound,
                               .timeout = timeout,
                               .servers = servers.size() > 1 ? &servers : nullptr});
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
  const bool has_step_number = role().module.graph("update").find_input("step").has_value();
  const std::int64_t updates_per_step = exchange_.each ? exchange_.workers : 1;
  runtime::Executor& update = executor(kUpdate);
  updates_ = 0;
  server_->serve(count, [&](int worker, std::int64_t step) {
    lr_ = static_cast<float>(lr(first + step));
    update.bind("lr", 0, one(lr_));
    step_number_ = static_cast<float>(first * updates_per_step + ++updates_);
    if (has_step_number) update.bind("step", 0, one(step_number_));
    if (worker >= 0)
      for (const program::Exchange::Message& m : exchange_.pushes)
        update.bind(m.of, 0, std::span<const std::byte>(resident_state(passes::slot_name(m.of, worker))));
    update.run();
  });
  return {update.scalar("loss"), update.scalar("grad_norm"), update.scalar("finite") != 0};
}

std::unique_ptr<Rank> make_rank(const Compiled& compiled, const Rank::Place& place, double timeout) {
  if (compiled.role_of(place.number).exchange) return std::make_unique<ServerRank>(compiled, place, timeout);
  if (compiled.role_of(place.number).in_flight) return std::make_unique<AsyncRank>(compiled, place);
  return std::make_unique<Rank>(compiled, place);
}

}  // namespace trireme::train
