#include "trireme/program/exchange.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

std::vector<Exchange::Message> messages(const Program& program, Instruction::Kind kind, int place) {
  std::vector<Exchange::Message> found;
  for (const Instruction& i : program.instructions)
    if (i.kind == kind && i.attributes.integer("peer") == place)
      found.push_back({static_cast<int>(i.attributes.integer("key")), i.attributes.text("of"),
                       (kind == Instruction::Kind::push ? i.inputs : i.outputs).front().type});
  return found;
}

void expect(const TensorType* found, const Exchange::Message& m, int place, const std::string& what) {
  if (found == nullptr) fail("rank {} has no {} for key {} ('{}')", place, what, m.key, m.of);
  if (*found != m.type)
    fail("key {} ('{}') is {} on the worker and {} on rank {}", m.key, m.of, m.type.str(), found->str(), place);
}

std::size_t bytes_of(const std::vector<Exchange::Message>& messages) {
  std::size_t sum = 0;
  for (const Exchange::Message& m : messages) sum += m.type.bytes();
  return sum;
}

}  // namespace

std::string Exchange::pace() const {
  if (!each) return "sync";
  return bound ? fmt::format("ssp:{}", *bound) : "async";
}

std::size_t Exchange::pushed_bytes() const { return bytes_of(pushes); }
std::size_t Exchange::pulled_bytes() const { return bytes_of(states) + bytes_of(results); }

Exchange match(const Program& step, const Program& refresh, const ir::Module& there, int place, int workers,
               const std::function<std::string(const std::string& of, int worker)>& slot) {
  const auto state = [&](const std::string& name) -> const TensorType* {
    const ir::StateId id = there.find_state(name);
    return id == ir::kNone ? nullptr : &there.state(id).type;
  };
  Exchange exchange;
  exchange.workers = workers;
  exchange.place = place;
  exchange.pushes = messages(step, Instruction::Kind::push, place);
  for (const Exchange::Message& m : exchange.pushes)
    for (int w = 0; w < workers; ++w) expect(state(slot(m.of, w)), m, place, "slot");
  // Nothing is waited for that nobody sends.
  const auto slots = std::count_if(there.states.begin(), there.states.end(),
                                   [](const ir::State& s) { return s.category == ir::Category::gradients; });
  if (slots != std::ssize(exchange.pushes) * workers)
    fail("rank {} has {} slots, and {} workers push {} keys to it", place, slots, workers, exchange.pushes.size());
  const ir::Graph& update = there.graph("update");
  for (const Exchange::Message& m : messages(step, Instruction::Kind::pull, place)) {
    const auto output = update.find_output(m.of);
    const bool is_state = state(m.of) != nullptr;
    expect(is_state ? state(m.of) : output ? &update.type(*output) : nullptr, m, place, "state or output");
    (is_state ? exchange.states : exchange.results).push_back(m);
  }
  if (messages(refresh, Instruction::Kind::pull, place) != exchange.states)
    fail("'{}' and '{}' do not pull the same from rank {}", step.name, refresh.name, place);
  return exchange;
}

}  // namespace trireme::program
