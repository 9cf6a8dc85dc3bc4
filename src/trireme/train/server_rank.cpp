#include "trireme/train/server_rank.h"

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

std::span<const std::byte> one(const float& value) { return std::as_bytes(std::span(&value, 1)); }

}  // namespace

ServerRank::ServerRank(const Compiled& compiled, int threads, const std::filesystem::path& disk,
                       runtime::Membership& ranks, double timeout)
    : compiled_(compiled), rank_(compiled, threads, disk, &ranks) {
  using Message = runtime::Server::Message;
  const program::Exchange& table = compiled.exchange;
  std::vector<std::vector<Message>> slots(static_cast<std::size_t>(compiled.replicas));
  for (std::size_t w = 0; w < slots.size(); ++w)
    for (const program::Exchange::Message& m : table.pushes)
      slots[w].push_back({m.key, m.of, rank_.resident_state(passes::slot_name(m.of, static_cast<int>(w)))});
  std::vector<Message> states;
  for (const program::Exchange::Message& m : table.states) states.push_back({m.key, m.of, rank_.resident_state(m.of)});
  std::vector<Message> results;
  for (const program::Exchange::Message& m : table.results) {
    const std::span<const std::byte> bytes = rank_.step_executor().output(m.of);
    results.push_back({m.key, m.of, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  server_ = std::make_unique<runtime::Server>(
      *ranks.everyone, std::move(slots), std::move(states), std::move(results),
      runtime::Server::Options{.each = compiled.mode->each,
                               .bound = compiled.mode->bound,
                               .timeout = timeout,
                               .servers = ranks.groups.empty() ? nullptr : ranks.groups.front().get()});
}

void ServerRank::derive() {
  rank_.derive();
  server_->send_states();
}

StepResult ServerRank::serve(std::int64_t first, std::int64_t count,
                             const std::function<double(std::int64_t step)>& lr) {
  const ir::Graph& update = compiled_.module.graph("update");
  const bool has_step_number = update.find_input("step").has_value();
  const std::int64_t updates_per_step = compiled_.mode->each ? compiled_.replicas : 1;
  runtime::Executor& executor = rank_.step_executor();
  updates_ = 0;
  server_->serve(count, [&](int worker, std::int64_t step) {
    lr_ = static_cast<float>(lr(first + step));
    executor.bind("lr", 0, one(lr_));
    step_number_ = static_cast<float>(first * updates_per_step + ++updates_);
    if (has_step_number) executor.bind("step", 0, one(step_number_));
    if (worker >= 0)
      for (const program::Exchange::Message& m : compiled_.exchange.pushes)
        executor.bind(m.of, 0, std::span<const std::byte>(rank_.resident_state(passes::slot_name(m.of, worker))));
    executor.run();
  });
  return {executor.scalar("loss"), executor.scalar("grad_norm"), executor.scalar("finite") != 0};
}

}  // namespace trireme::train
