#include "trireme/program/copies.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "trireme/core/error.h"

namespace trireme::program {
namespace {

bool computes(const Instruction& i) { return !i.moves() && !i.on_host; }

std::size_t bytes_of(const Instruction& i) { return i.outputs.front().type.bytes(); }

bool overlap(const Operand& a, const Operand& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.extent() && b.offset < a.offset + a.extent();
}

class CopyScheduler {
 public:
  CopyScheduler(Program& program, const CopyOptions& options, bool collectives_overlap)
      : p_(program), options_(options), collectives_overlap_(collectives_overlap) {}

  void run() {
    if (std::all_of(p_.instructions.begin(), p_.instructions.end(), computes)) return;
    std::size_t elsewhere = 0;
    for (const Buffer& b : p_.buffers) elsewhere += b.tier != 0 ? b.bytes : 0;
    window_ = std::min(options_.window, elsewhere / 16);
    for (const Instruction& i : p_.instructions)
      if (i.on_host)
        for (const Operand& o : i.outputs) made_on_host_.insert(o.buffer);
    find_loads();
    hoist();
    rebuild();
    order();
    release_stores();
  }

 private:
  // Positions count compute instructions: a load at position c is issued before compute instruction c.
  struct Load {
    std::size_t instruction;
    std::size_t bytes;
    std::size_t reader;    // position of the first instruction that reads it
    std::size_t earliest;  // position from which its source is on its way
    std::size_t at = 0;
  };

  // What a launch on the host has made comes as soon as it is there, whichever instruction reads it.
  bool comes_at_once(const Instruction& i) const {
    return i.kind == Instruction::Kind::load && made_on_host_.contains(i.inputs.front().buffer);
  }

  void find_loads() {
    std::size_t position = 0;
    double now = 0;
    std::unordered_map<BufferId, std::vector<std::pair<Operand, std::size_t>>> stored;  // ranges and positions
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      if (instruction.kind == Instruction::Kind::store) {
        const Operand& to = instruction.outputs.front();
        stored[to.buffer].emplace_back(to, position);
      } else if (instruction.on_host || comes_at_once(instruction)) {
        continue;
      } else if (instruction.kind == Instruction::Kind::load) {
        const Operand& from = instruction.inputs.front();
        std::size_t earliest = 0;
        if (const auto found = stored.find(from.buffer); found != stored.end())
          for (const auto& [to, where] : found->second)
            if (overlap(to, from)) earliest = std::max(earliest, where);
        loads_.push_back({i, bytes_of(instruction), position, earliest, position});
      } else {
        starts_.push_back(now);
        now += compute_seconds(instruction, options_.rates);
        ++position;
      }
    }
    starts_.push_back(now);
    largest_ = 0;
    for (const Load& load : loads_) largest_ = std::max(largest_, load.bytes);
  }

  void hoist() {
    double next_start = starts_.back();
    for (std::size_t k = loads_.size(); k-- > 0;) {
      Load& load = loads_[k];
      // Nominal rates are not this machine's: twice the time.
      const double start = std::min(next_start, starts_[load.reader]) - 2 * options_.rates.move_seconds(load.bytes);
      const auto after = std::upper_bound(starts_.begin(), starts_.end(), start);
      load.at = after == starts_.begin() ? 0 : static_cast<std::size_t>(after - starts_.begin()) - 1;
      next_start = start;
    }
    // The window: what is loaded and not yet read. `oldest` is the first load that fits with this one.
    std::size_t oldest = 0;
    std::size_t held = 0;
    std::size_t at = 0;
    for (std::size_t k = 0; k < loads_.size(); ++k) {
      Load& load = loads_[k];
      held += load.bytes;
      while (held > window_ + largest_ && oldest < k) held -= loads_[oldest++].bytes;
      at = std::max({at, load.at, load.earliest, oldest == 0 ? 0 : loads_[oldest - 1].reader + 1});
      load.at = at = std::min(at, load.reader);
    }
  }

  void rebuild() {
    std::vector<Instruction> fresh;
    fresh.reserve(p_.instructions.size());
    std::size_t position = 0;
    std::size_t next = 0;
    const auto issue = [&] {
      while (next < loads_.size() && loads_[next].at <= position)
        fresh.push_back(p_.instructions[loads_[next++].instruction]);
    };
    for (const Instruction& instruction : p_.instructions) {
      if (instruction.kind == Instruction::Kind::load && !comes_at_once(instruction)) continue;
      if (computes(instruction)) issue();
      fresh.push_back(instruction);
      if (computes(instruction)) ++position;
    }
    TRI_CHECK(next == loads_.size(), "a load has no reader");
    p_.instructions = std::move(fresh);
  }

  std::int32_t event_of(std::size_t i) {
    if (p_.instructions[i].records == kNone) p_.instructions[i].records = events_++;
    return p_.instructions[i].records;
  }

  static void wait(Instruction& instruction, std::int32_t event) {
    if (std::find(instruction.waits.begin(), instruction.waits.end(), event) == instruction.waits.end())
      instruction.waits.push_back(event);
  }

  void order() {
    events_ = p_.events();
    std::size_t computed = p_.instructions.size();                  // the compute instruction before this one
    std::unordered_map<BufferId, std::size_t> loaded;               // device buffer → load nobody has waited for
    std::unordered_map<BufferId, std::vector<std::size_t>> stored;  // tier buffer → its stores
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      Instruction& instruction = p_.instructions[i];
      if (computes(instruction)) {
        for (const auto* operands : {&instruction.inputs, &instruction.outputs})
          for (const Operand& o : *operands)
            if (const auto load = loaded.find(o.buffer); load != loaded.end()) {
              wait(instruction, event_of(load->second));
              loaded.erase(load);
            }
        if (!collectives_overlap_ || instruction.kind != Instruction::Kind::collective) computed = i;
        continue;
      }
      if (instruction.on_host) continue;
      if (computed < i) wait(instruction, event_of(computed));
      if (instruction.kind == Instruction::Kind::store) {
        stored[instruction.outputs.front().buffer].push_back(i);
        continue;
      }
      for (const std::size_t store : stored[instruction.inputs.front().buffer])
        if (overlap(p_.instructions[store].outputs.front(), instruction.inputs.front()))
          wait(instruction, event_of(store));
      loaded[instruction.outputs.front().buffer] = i;
    }
  }

  // Plays the program at the nominal rates.
  void release_stores() {
    double compute = 0;
    double store_free = 0;
    double load_free = 0;
    std::size_t held = 0;
    std::size_t largest = 0;
    std::unordered_map<std::int32_t, double> done;  // by event
    struct Pending {
      std::size_t store;
      double end;
    };
    std::deque<Pending> pending;
    for (const Instruction& i : p_.instructions)
      if (i.kind == Instruction::Kind::store) largest = std::max(largest, bytes_of(i));
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      Instruction& instruction = p_.instructions[i];
      double ready = compute;
      for (const std::int32_t event : instruction.waits) ready = std::max(ready, done[event]);
      if (instruction.kind == Instruction::Kind::store) {
        store_free = std::max(ready, store_free) + options_.rates.move_seconds(bytes_of(instruction));
        done[event_of(i)] = store_free;
        pending.push_back({i, store_free});
        held += bytes_of(instruction);
      } else if (instruction.kind == Instruction::Kind::load) {
        load_free = std::max(ready, load_free) + options_.rates.move_seconds(bytes_of(instruction));
        done[event_of(i)] = load_free;
      } else if (!instruction.on_host) {
        compute = ready;
        while (!pending.empty() && (pending.front().end <= compute || held > window_ + largest)) {
          compute = std::max(compute, pending.front().end);
          wait(instruction, event_of(pending.front().store));
          held -= bytes_of(p_.instructions[pending.front().store]);
          pending.pop_front();
        }
        compute += compute_seconds(instruction, options_.rates);
        if (instruction.records != kNone) done[instruction.records] = compute;
      }
    }
  }

  Program& p_;
  const CopyOptions& options_;
  bool collectives_overlap_;
  std::vector<Load> loads_;
  std::vector<double> starts_;  // by position, as if nothing had to be waited for
  std::unordered_set<BufferId> made_on_host_;
  std::size_t window_ = 0;
  std::size_t largest_ = 0;
  std::int32_t events_ = 0;
};

}  // namespace

double compute_seconds(const Instruction& instruction, const cost::Rates& rates) {
  if (!computes(instruction)) return 0;
  ir::Cost cost;
  if (instruction.op != nullptr) {
    ir::Types inputs;
    ir::Types outputs;
    for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
    for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
    cost = instruction.op->cost(inputs, outputs, instruction.attributes);
  } else {
    cost.bytes_read = cost.bytes_written = static_cast<double>(bytes_of(instruction));
  }
  return rates.compute_seconds(cost);
}

void schedule_copies(Program& program, const CopyOptions& options, bool collectives_overlap) {
  CopyScheduler(program, options, collectives_overlap).run();
}

}  // namespace trireme::program
