#include "trireme/runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/program/print.h"

namespace trireme::runtime {

using program::Instruction;
using program::Operand;

namespace {

// Two instructions with the same signature share a prepared kernel.
std::string signature(const Instruction& instruction) {
  std::string key = fmt::format("{}|{}|{}", instruction.op->name, instruction.accumulate, instruction.stream);
  for (const auto& [name, value] : instruction.attributes) key += "|" + name + "=" + ir::to_text(value);
  for (const Operand& o : instruction.inputs) key += "|" + o.type.str();
  key += "→";
  for (const Operand& o : instruction.outputs) key += "|" + o.type.str();
  return key;
}

}  // namespace

Executor::Executor(const program::Program& program, device::Arena& arena, ThreadPool& pool, const Tiers& tiers,
                   ProcessGroups* ranks)
    : program_(program),
      arena_(arena),
      tiers_(tiers),
      pool_(pool),
      ranks_(ranks),
      prepared_(program.instructions.size()),
      events_(static_cast<std::size_t>(program.events())) {
  if (arena.bytes() < program.arena_bytes)
    fail("program '{}' needs an arena of {} bytes, got {}", program.name, program.arena_bytes, arena.bytes());
  // Kernels were given workspaces for this many threads.
  if (pool.threads() > program.threads)
    fail("program '{}' is for {} threads, got {}", program.name, program.threads, pool.threads());
  const auto check_tier = [&](int tier, std::size_t there) {
    if (const std::size_t needed = program.bytes_in(tier); needed > there)
      fail("program '{}' needs {} bytes on the {}, got {}", program.name, needed, program::tier_name(tier), there);
  };
  check_tier(program::kHostTier, tiers.host == nullptr ? 0 : tiers.host->bytes());
  check_tier(program::kDiskTier, tiers.disk == nullptr ? 0 : tiers.disk->bytes());
  if (program.mesh.ranks() > 1 && (ranks == nullptr || ranks->mesh() != program.mesh))
    fail("program '{}' is for the ranks of '{}', got '{}'", program.name, program.mesh.str(),
         ranks == nullptr ? "" : ranks->mesh().str());
  if (arena.kind() != program.device)
    fail("program '{}' is for the memory of a {}, got that of a {}", program.name, device::name_of(program.device),
         device::name_of(arena.kind()));
  comm_events_.assign(events_.size(), false);
  for (const Instruction& instruction : program.instructions)
    if (instruction.communicates() && instruction.records != program::kNone)
      comm_events_[static_cast<std::size_t>(instruction.records)] = true;
  std::unordered_map<std::string, device::Kernel*> cache;
  std::vector<std::size_t> per_stream(static_cast<std::size_t>(program.streams()), 0);
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    try {
      prepare(i, cache);
    } catch (Error& e) {
      throw e.within("preparing " + program::describe(program, i));
    }
    ++per_stream[static_cast<std::size_t>(program.instructions[i].stream)];
  }
  channels_.resize(per_stream.size());
  last_copy_.resize(per_stream.size());
  on_their_way_.resize(per_stream.size());
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    if (program.instructions[i].moves()) last_copy_[static_cast<std::size_t>(program.instructions[i].stream)] = i;
  for (auto& copies : on_their_way_) copies.reserve(device::TierChannel::kAhead);
  if (tiers.disk != nullptr)
    for (const Instruction& instruction : program.instructions)
      if (auto& channel = channels_[static_cast<std::size_t>(instruction.stream)]; instruction.moves() && !channel)
        channel = std::make_unique<device::TierChannel>(*tiers.disk);
  streams_.resize(per_stream.size());
  if (program.device != device::Kind::cpu) {
    prepare_queue();
    return;
  }
  for (std::size_t s = 1; s < per_stream.size(); ++s) streams_[s] = std::make_unique<device::Stream>(per_stream[s]);
}

Executor::~Executor() = default;

void Executor::prepare(std::size_t i, std::unordered_map<std::string, device::Kernel*>& cache) {
  const Instruction& instruction = program_.instructions[i];
  Prepared& p = prepared_[i];
  const auto place = [&](const Operand& o) -> std::byte* {
    if (o.buffer == program::kNone) return nullptr;
    const program::Buffer& buffer = program_.buffers[static_cast<std::size_t>(o.buffer)];
    std::size_t offset = buffer.offset + o.offset;
    if (o.place.axis != program::kNone)
      offset += o.place.stride * static_cast<std::size_t>(ranks_->coordinate()[static_cast<std::size_t>(o.place.axis)]);
    const std::size_t bytes = instruction.moves() ? buffer.moved(o.type.bytes()) : o.type.bytes();
    std::size_t& end = p.end_offset[static_cast<std::size_t>(buffer.tier)];
    end = std::max(end, offset + bytes);
    if (buffer.tier == 0) return arena_.data() + offset;
    if (buffer.tier == program::kHostTier) return tiers_.host->data() + offset;
    p.tier_offset = offset;
    return nullptr;
  };
  for (const Operand& o : instruction.inputs) p.inputs.push_back(place(o));
  for (const Operand& o : instruction.outputs) p.outputs.push_back(place(o));
  p.workspace = place(instruction.workspace);
  for (const Operand& o : instruction.outputs)
    if (const ir::StateId state = program_.buffers[static_cast<std::size_t>(o.buffer)].state; state >= 0)
      p.overwrites.push_back(state);
  for (const std::int32_t event : instruction.waits)
    p.waits_for_others = p.waits_for_others || comm_events_[static_cast<std::size_t>(event)];
  if (instruction.kind == Instruction::Kind::collective)
    prepare_collective(i);
  else if (instruction.communicates())
    prepare_message(i);
  if (instruction.kind != Instruction::Kind::launch) return;
  device::Kernel*& known = cache[signature(instruction)];
  p.kernel = known;
  if (known != nullptr) return;
  ir::Types inputs;
  ir::Types outputs;
  for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
  for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
  const ir::KernelSpec spec{inputs, outputs, instruction.attributes, program_.threads, instruction.accumulate};
  kernels_.push_back(
      instruction.op->kernels.at(instruction.on_host ? device::Kind::cpu : program_.device).prepare(spec));
  p.kernel = known = kernels_.back().get();
}

void Executor::prepare_collective(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  Prepared& p = prepared_[i];
  if (ranks_ == nullptr) fail("there are no other ranks");
  p.group = &ranks_->group(instruction.attributes.text("axis"));
  const bool on_device = program_.device != device::Kind::cpu;
  if (on_device) p.device_group = &ranks_->device_group(instruction.attributes.text("axis"), program_.device);
  if (!on_device && instruction.op->name == ops::kAllToAll && instruction.inputs.size() > 1 && p.workspace == nullptr)
    fail("several tensors are exchanged by way of a workspace, and there is none");
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    const Operand& in = instruction.inputs[o];
    const Operand& out = instruction.outputs[o];
    if (instruction.op->name == ops::kAllReduce) {
      if (p.inputs[o] != p.outputs[o]) p.copies.push_back({p.outputs[o], p.inputs[o], out.type.bytes()});
      p.segments.push_back({p.outputs[o], out.type.elements()});
    } else if (instruction.op->name == ops::kReduceScatter) {
      p.cuts.push_back({const_cast<void*>(p.inputs[o]), p.outputs[o], in.type.elements(), out.type.elements()});
    } else if (instruction.op->name == ops::kAllGather) {
      p.cuts.push_back({p.outputs[o], const_cast<void*>(p.inputs[o]), out.type.elements(), in.type.elements()});
    }
  }
}

// Row r of each operand goes to rank r: several operands as one message, by way of the workspace.
void Executor::exchange(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const auto bytes = [&](std::size_t o) { return instruction.inputs[o].type.bytes(); };
  if (p.inputs.size() == 1) {
    p.group->all_to_all({static_cast<const std::byte*>(p.inputs[0]), bytes(0)},
                        {static_cast<std::byte*>(p.outputs[0]), bytes(0)});
    return;
  }
  const auto ranks = static_cast<std::size_t>(p.group->size());
  std::size_t total = 0;
  for (std::size_t o = 0; o < p.inputs.size(); ++o) total += bytes(o);
  auto* out = static_cast<std::byte*>(p.workspace);
  std::byte* in = out + total;
  // Calls f(where a row is in the packed form, in which operand, where in it, its bytes).
  const auto each_row = [&](auto&& f) {
    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t o = 0; o < p.inputs.size(); ++o) {
        const std::size_t row = bytes(o) / ranks;
        f(at, o, r * row, row);
        at += row;
      }
  };
  each_row([&](std::size_t at, std::size_t o, std::size_t from, std::size_t row) {
    std::memcpy(out + at, static_cast<const std::byte*>(p.inputs[o]) + from, row);
  });
  p.group->all_to_all({out, total}, {in, total});
  each_row([&](std::size_t at, std::size_t o, std::size_t to, std::size_t row) {
    std::memcpy(static_cast<std::byte*>(p.outputs[o]) + to, in + at, row);
  });
}

void Executor::combine(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const DType dtype = instruction.inputs.front().type.dtype;
  const comm::Options options{ranks_->algorithm(),
                              {static_cast<std::byte*>(p.workspace), instruction.workspace.type.bytes()},
                              instruction.name};
  if (instruction.op->name == ops::kAllReduce) {
    for (const Copy& copy : p.copies) std::memcpy(copy.to, copy.from, copy.bytes);
    const bool max = instruction.attributes.text("reduce") == "max";
    p.group->all_reduce(p.segments, dtype, max ? comm::Reduce::max : comm::Reduce::sum, options);
  } else if (instruction.op->name == ops::kReduceScatter) {
    p.group->reduce_scatter(p.cuts, dtype, comm::Reduce::sum, options);
  } else if (instruction.op->name == ops::kAllToAll) {
    exchange(i);
  } else {
    p.group->all_gather(p.cuts, dtype, options);
  }
}

void Executor::prepare_message(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  Prepared& p = prepared_[i];
  if (ranks_ == nullptr) fail("there are no other ranks");
  p.group = &ranks_->all();
  p.peer = static_cast<int>(instruction.attributes.integer("peer"));
  p.key = static_cast<int>(instruction.attributes.integer("key"));
  if (p.peer >= p.group->size()) fail("there is no rank {}", p.peer);
}

void Executor::send_or_receive(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  if (instruction.kind == Instruction::Kind::pull) {
    p.group->recv({static_cast<std::byte*>(p.outputs.front()), instruction.outputs.front().type.bytes()}, p.peer,
                  p.key);
    return;
  }
  p.group->send({static_cast<const std::byte*>(p.inputs.front()), instruction.inputs.front().type.bytes()}, p.peer,
                p.key);
  *static_cast<std::uint8_t*>(p.outputs.front()) = 1;
}

void Executor::bind(std::string_view name, int micro, std::span<const std::byte> data) {
  bool found = false;
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (instruction.kind != Instruction::Kind::input || instruction.name != name || instruction.micro != micro)
      continue;
    if (data.size() != instruction.outputs.front().type.bytes())
      fail("input '{}' is {}, got {} bytes", name, instruction.outputs.front().type.str(), data.size());
    prepared_[i].bound = data.data();
    found = true;
  }
  if (!found) fail("program '{}' has no input '{}' in micro-batch {}", program_.name, name, micro);
}

const TensorType& Executor::input_type(std::string_view name) const {
  for (const Instruction& instruction : program_.instructions)
    if (instruction.kind == Instruction::Kind::input && instruction.name == name)
      return instruction.outputs.front().type;
  fail("program '{}' has no input '{}'", program_.name, name);
}

void Executor::check_bound() const {
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (instruction.kind == Instruction::Kind::input && prepared_[i].bound == nullptr)
      fail("input '{}' of micro-batch {} is not bound", instruction.name, instruction.micro);
  }
}

// What is due before any instruction.
void Executor::prepare_launch(std::size_t i) {
  const Prepared& p = prepared_[i];
  for (std::size_t tier = 0; tier < measured_peak_.size(); ++tier) {
    std::atomic<std::size_t>& peak = measured_peak_[tier];
    std::size_t seen = peak.load(std::memory_order_relaxed);
    while (seen < p.end_offset[tier] &&
           !peak.compare_exchange_weak(seen, p.end_offset[tier], std::memory_order_relaxed)) {
    }
  }
  if (held_ != nullptr)
    for (const ir::StateId state : p.overwrites) held_->wait(state);
}

void Executor::execute(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  prepare_launch(i);
  if (queue_) return issue(i);
  switch (instruction.kind) {
    case Instruction::Kind::input:
      std::memcpy(p.outputs.front(), p.bound, instruction.outputs.front().type.bytes());
      break;
    case Instruction::Kind::copy:
      std::memmove(p.outputs.front(), p.inputs.front(), instruction.outputs.front().type.bytes());
      break;
    case Instruction::Kind::store:
    case Instruction::Kind::load: move(i); break;
    case Instruction::Kind::collective: combine(i); break;
    case Instruction::Kind::push:
    case Instruction::Kind::pull: send_or_receive(i); break;
    case Instruction::Kind::launch: {
      ThreadPool& pool = instruction.on_host ? host_pool_ : instruction.stream == 0 ? pool_ : side_pool_;
      p.kernel->launch({p.inputs, p.outputs, p.workspace, &pool, nullptr});
      break;
    }
  }
}

void Executor::move(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  if (!on_disk(i)) {  // a CPU's own memory is the host's
    std::memcpy(p.outputs.front(), p.inputs.front(), instruction.outputs.front().type.bytes());
    return;
  }
  const std::size_t bytes = program::aligned(instruction.outputs.front().type.bytes(), program::kPage);
  device::TierChannel& channel = *channels_[static_cast<std::size_t>(instruction.stream)];
  if (instruction.kind == Instruction::Kind::store)
    channel.write(p.tier_offset, {static_cast<const std::byte*>(p.inputs.front()), bytes});
  else
    channel.read(p.tier_offset, {static_cast<std::byte*>(p.outputs.front()), bytes});
}

// Whether it is a copy to or from the disk.
bool Executor::on_disk(std::size_t i) const {
  const Instruction& instruction = program_.instructions[i];
  if (!instruction.moves()) return false;
  const Operand& there =
      instruction.kind == Instruction::Kind::store ? instruction.outputs.front() : instruction.inputs.front();
  return program_.buffers[static_cast<std::size_t>(there.buffer)].tier == program::kDiskTier;
}

void Executor::record_failure(std::size_t i) {
  const std::lock_guard lock(failure_mutex_);
  if (failed_.exchange(true)) return;  // the first error wins
  try {
    throw;
  } catch (Error& e) {
    failure_ = std::make_exception_ptr(e.within(program::describe(program_, i)));
  } catch (const std::exception& e) {
    failure_ = std::make_exception_ptr(Error(Error::Kind::failure, program::describe(program_, i) + ": " + e.what()));
  } catch (...) {
    failure_ = std::make_exception_ptr(Error(Error::Kind::failure, program::describe(program_, i) + " failed"));
  }
}

void Executor::wait_for_events(std::size_t i) const {
  for (const std::int32_t event : program_.instructions[i].waits) events_[static_cast<std::size_t>(event)].wait(runs_);
}

void Executor::record_event(std::size_t i) {
  if (const std::int32_t event = program_.instructions[i].records; event != program::kNone)
    events_[static_cast<std::size_t>(event)].record();
}

// After a failure the rest of the program is skipped, but events are still recorded so that no stream waits for ever.
void Executor::execute_guarded(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  if (instruction.stream == 0 && !instruction.waits.empty()) {
    const auto begin = Trace::Clock::now();
    wait_for_events(i);
    const double waited = std::chrono::duration<double>(Trace::Clock::now() - begin).count();
    wait_seconds_[static_cast<std::size_t>(instruction.phase)] += waited;
    if (prepared_[i].waits_for_others) exposed_comm_ += waited;
  } else {
    wait_for_events(i);
  }
  if (!failed_.load(std::memory_order_acquire)) {
    const auto begin = Trace::Clock::now();
    try {
      execute(i);
    } catch (...) {
      record_failure(i);
    }
    const auto end = Trace::Clock::now();
    if (instruction.stream == 0)
      phase_seconds_[static_cast<std::size_t>(instruction.phase)] += std::chrono::duration<double>(end - begin).count();
    if (instruction.stream == 0 && instruction.communicates())
      exposed_comm_ += std::chrono::duration<double>(end - begin).count();
    if (trace_ != nullptr) trace_->record({prepared_[i].label, instruction.stream, begin, end});
  }
  record_event(i);
}

// Whether copy i may be on its way beside those that are: nobody has to be waited for, and none writes the same bytes.
// Until it may, the others are seen to their end: whoever records this one's events may wait for them.
bool Executor::can_join(std::size_t i) const {
  const Instruction& instruction = program_.instructions[i];
  for (const std::int32_t event : instruction.waits)
    if (!events_[static_cast<std::size_t>(event)].recorded(runs_)) return false;
  const Operand& target = instruction.outputs.front();
  const auto range = [&](const Operand& o) {
    const std::size_t begin = program_.buffers[static_cast<std::size_t>(o.buffer)].offset + o.offset;
    return std::pair(begin, begin + program::aligned(o.type.bytes(), program::kPage));
  };
  const auto [begin, end] = range(target);
  const auto& others = on_their_way_[static_cast<std::size_t>(instruction.stream)];
  return std::none_of(others.begin(), others.end(), [&, begin = begin, end = end](const OnItsWay& other) {
    const auto [from, to] = range(program_.instructions[other.instruction].outputs.front());
    return from < end && begin < to;
  });
}

void Executor::begin_copy(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const auto stream = static_cast<std::size_t>(instruction.stream);
  if (!can_join(i)) end_copies(stream, 0);
  wait_for_events(i);
  if (failed_.load(std::memory_order_acquire)) {
    record_event(i);
  } else {
    try {
      prepare_launch(i);
      const Prepared& p = prepared_[i];
      const std::size_t bytes = program::aligned(instruction.outputs.front().type.bytes(), program::kPage);
      const auto begin = Trace::Clock::now();
      if (instruction.kind == Instruction::Kind::store)
        channels_[stream]->begin_write(i, p.tier_offset, {static_cast<const std::byte*>(p.inputs.front()), bytes});
      else
        channels_[stream]->begin_read(i, p.tier_offset, {static_cast<std::byte*>(p.outputs.front()), bytes});
      on_their_way_[stream].push_back({i, begin});
    } catch (...) {
      record_failure(i);
      record_event(i);
    }
  }
  end_copies(stream, i == last_copy_[stream] ? 0 : device::TierChannel::kAhead - 1);
}

void Executor::end_copies(std::size_t stream, std::size_t most_left) {
  auto& copies = on_their_way_[stream];
  while (copies.size() > most_left) {
    const device::TierChannel::Ended ended = channels_[stream]->wait();
    if (!ended.error.empty()) try {
        fail("{}", ended.error);
      } catch (...) {
        record_failure(ended.tag);
      }
    const auto copy = std::find_if(copies.begin(), copies.end(),
                                   [&](const OnItsWay& other) { return other.instruction == ended.tag; });
    if (trace_ != nullptr)
      trace_->record({prepared_[ended.tag].label, static_cast<std::int32_t>(stream), copy->begin, Trace::Clock::now()});
    copies.erase(copy);
    record_event(ended.tag);
  }
}

void Executor::run() {
  check_bound();
  ++runs_;
  if (queue_) return run_on_device();
  failed_ = false;
  failure_ = nullptr;
  phase_seconds_ = {};
  wait_seconds_ = {};
  exposed_comm_ = 0;
  const auto task = [](void* self, std::size_t i) { static_cast<Executor*>(self)->execute_guarded(i); };
  const auto copy = [](void* self, std::size_t i) { static_cast<Executor*>(self)->begin_copy(i); };
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    if (const auto stream = static_cast<std::size_t>(program_.instructions[i].stream); stream != 0)
      streams_[stream]->submit({on_disk(i) ? +copy : +task, this, i});
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    if (program_.instructions[i].stream == 0) execute_guarded(i);
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    const auto begin = Trace::Clock::now();
    streams_[s]->synchronize();
    if (s == program::kCommStream) exposed_comm_ += std::chrono::duration<double>(Trace::Clock::now() - begin).count();
  }
  if (failure_) std::rethrow_exception(failure_);
}

std::span<const std::byte> Executor::output(std::string_view name, int micro) const {
  for (std::size_t o = 0; o < program_.outputs.size(); ++o) {
    const program::NamedOutput& output = program_.outputs[o];
    if (output.name != name || output.micro != micro) continue;
    const std::size_t offset = program_.buffers[static_cast<std::size_t>(output.operand.buffer)].offset;
    const std::size_t bytes = output.operand.type.bytes();
    if (!queue_) return {arena_.data() + offset, bytes};
    if (early_outputs_[o] != nullptr) return {early_outputs_[o], bytes};
    fetched_[o].resize(bytes);
    arena_.read(offset, fetched_[o]);
    return fetched_[o];
  }
  fail("program '{}' has no output '{}' in micro-batch {}", program_.name, name, micro);
}

float Executor::scalar(std::string_view name, int micro) const {
  const auto bytes = output(name, micro);
  TRI_CHECK(bytes.size() == sizeof(float), "output '{}' is not an f32 scalar", name);
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void Executor::set_trace(Trace* trace) {
  trace_ = trace;
  if (queue_) prepare_queue();
  if (trace == nullptr) return;
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    prepared_[i].label =
        trace->label(program::kind_of(instruction) + (instruction.on_host ? "@host " : " ") + instruction.name,
                     ir::name_of(instruction.phase));
  }
}

}  // namespace trireme::runtime
