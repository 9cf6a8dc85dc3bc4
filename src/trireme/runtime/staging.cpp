#include "trireme/runtime/staging.h"

#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"

namespace trireme::runtime {

using program::Instruction;

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 16;  // bytes of an input that is worth a copy of its own
constexpr std::size_t kLeft = std::size_t{1} << 30;   // bytes of a device that libraries may still want
constexpr std::size_t kEarly = 256;                   // bytes of an output that comes by itself at the end of a run

bool is_input(const Instruction& instruction) { return instruction.kind == Instruction::Kind::input; }
std::size_t bytes_of(const Instruction& instruction) { return instruction.outputs.front().type.bytes(); }
std::byte* target_of(const program::Program& program, const device::Arena& arena, const Instruction& instruction) {
  const program::Operand& to = instruction.outputs.front();
  return arena.data() + program.buffers[static_cast<std::size_t>(to.buffer)].offset + to.offset;
}

// Before all else, on the compute stream.
template <class F>
void each_ahead(const program::Program& program, F&& body) {
  const std::vector<Instruction>& instructions = program.instructions;
  for (std::size_t i = 0; i < instructions.size() && is_input(instructions[i]); ++i)
    if (bytes_of(instructions[i]) > kLarge && instructions[i].stream == 0) body(i);
}

// Images of a batch are more than one core copies in the time of a step.
void copy_by(ThreadPool& pool, std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  pool.run(static_cast<std::int64_t>((from.size() + kBlock - 1) / kBlock), [&](std::int64_t block) {
    const std::size_t at = static_cast<std::size_t>(block) * kBlock;
    std::memcpy(to + at, from.data() + at, std::min(kBlock, from.size() - at));
  });
}

}  // namespace

Staging::Staging(const program::Program& program, const device::Arena& arena, bool asynchronous)
    : program_(program), arena_(arena), inputs_(program.instructions.size()), early_(program.outputs.size(), nullptr) {
  if (!asynchronous) return;
  fetched_.resize(program.outputs.size());
  const std::vector<Instruction>& instructions = program.instructions;
  std::size_t bytes = 0;
  for (const Instruction& instruction : instructions)
    if (is_input(instruction)) bytes += program::aligned(bytes_of(instruction));
  for (const program::NamedOutput& output : program.outputs)
    if (const std::size_t size = output.operand.type.bytes(); size <= kEarly) bytes += program::aligned(size);
  block_ = std::make_unique<device::HostBlock>(program.device, bytes);
  std::byte* next = block_->data();
  const auto take = [&](std::size_t size) { return std::exchange(next, next + program::aligned(size)); };
  for (std::size_t i = 0; i < instructions.size(); ++i)
    if (is_input(instructions[i])) inputs_[i].staged = take(bytes_of(instructions[i]));
  for (std::size_t o = 0; o < program.outputs.size(); ++o)
    if (const std::size_t size = program.outputs[o].operand.type.bytes(); size <= kEarly) early_[o] = take(size);
  each_ahead(program, [&](std::size_t i) { inputs_[i].ahead = can_expect_ = true; });
}

const TensorType* Staging::type_of(std::string_view input) const {
  for (const Instruction& instruction : program_.instructions)
    if (is_input(instruction) && instruction.name == input) return &instruction.outputs.front().type;
  return nullptr;
}

// The instructions that read it: one, or several, as in a pipeline's chunks.
template <class F>
void Staging::each_reader(std::string_view name, int micro, std::size_t bytes, F&& body) const {
  bool found = false;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (!is_input(instruction) || instruction.name != name || instruction.micro != micro) continue;
    if (bytes != bytes_of(instruction))
      fail("input '{}' is {}, got {} bytes", name, instruction.outputs.front().type.str(), bytes);
    body(i);
    found = true;
  }
  if (!found) fail("program '{}' has no input '{}' in micro-batch {}", program_.name, name, micro);
}

void Staging::bind(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step) {
  each_reader(name, micro, data.size(), [&](std::size_t i) {
    inputs_[i].bound = data.data();
    inputs_[i].bound_step = step;
  });
}

void Staging::check_bound() const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (const Instruction& instruction = program_.instructions[i]; is_input(instruction) && inputs_[i].bound == nullptr)
      fail("input '{}' of micro-batch {} is not bound", instruction.name, instruction.micro);
}

const std::byte* Staging::source(std::size_t i, const device::Streams& streams) const {
  const Input& input = inputs_[i];
  if (input.there != kNoStep && input.there == input.bound_step) return input.second->data();
  const bool in_place = input.staged == nullptr || (input.ahead && streams.reads(input.bound));
  return in_place ? input.bound : input.staged;
}

void Staging::stage(const device::Streams& streams, ThreadPool& pool) {
  if (!block_) return;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (const Input& input = inputs_[i]; input.staged != nullptr && source(i, streams) == input.staged)
      copy_by(pool, {input.bound, bytes_of(program_.instructions[i])}, input.staged);
}

void Staging::copy_ahead(device::Streams& streams) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (const Instruction& instruction = program_.instructions[i]; inputs_[i].ahead)
      streams.copy(target_of(program_, arena_, instruction), source(i, streams), bytes_of(instruction));
}

void Staging::expect(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step,
                     const device::Streams& streams) {
  if (!can_expect_) return;
  each_reader(name, micro, data.size(), [&](std::size_t i) {
    Input& input = inputs_[i];
    if (!input.ahead || full_ || !streams.reads(data.data())) return;
    if (!input.second) {
      full_ = device::free_bytes(program_.device) < data.size() + kLeft;
      if (full_) return;
      input.second = std::make_unique<device::Arena>(data.size(), program_.device);
    }
    input.expected = data.data();
    input.expected_step = step;
  });
}

void Staging::add_stream(device::StreamShape& shape) {
  if (!can_expect_) return;
  ahead_stream_ = shape.streams++;
  ahead_event_ = shape.events++;
}

void Staging::copy_expected(device::Streams& streams) {
  if (std::none_of(inputs_.begin(), inputs_.end(), [](const Input& input) { return input.expected != nullptr; }))
    return;
  streams.record(ahead_event_, 0);
  streams.wait(ahead_event_, ahead_stream_);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (Input& input = inputs_[i]; input.expected != nullptr) {
      input.there = kNoStep;
      input.on_its_way = input.expected_step;
      streams.copy(input.second->data(), std::exchange(input.expected, nullptr), bytes_of(program_.instructions[i]),
                   ahead_stream_);
    }
}

void Staging::settle(bool failed) {
  if (!can_expect_) return;
  for (Input& input : inputs_) {
    input.there = failed ? kNoStep : input.on_its_way;
    input.on_its_way = kNoStep;
    input.expected = nullptr;
  }
}

std::size_t bytes_ahead(const program::Program& program) {
  std::size_t bytes = 0;
  each_ahead(program,
             [&](std::size_t i) { bytes += program::aligned(bytes_of(program.instructions[i]), program::kPage); });
  return bytes;
}

std::size_t Staging::offset_of(std::size_t o) const {
  const program::Operand& operand = program_.outputs[o].operand;
  return program_.buffers[static_cast<std::size_t>(operand.buffer)].offset + operand.offset;
}

void Staging::fetch_outputs(device::Streams& streams) const {
  for (std::size_t o = 0; o < early_.size(); ++o)
    if (early_[o] != nullptr)
      streams.copy(early_[o], arena_.data() + offset_of(o), program_.outputs[o].operand.type.bytes());
}

std::span<const std::byte> Staging::output(std::string_view name, int micro) const {
  const auto named = [&](const program::NamedOutput& output) { return output.name == name && output.micro == micro; };
  const auto found = std::find_if(program_.outputs.begin(), program_.outputs.end(), named);
  if (found == program_.outputs.end())
    fail("program '{}' has no output '{}' in micro-batch {}", program_.name, name, micro);
  const auto o = static_cast<std::size_t>(found - program_.outputs.begin());
  const std::size_t bytes = program_.outputs[o].operand.type.bytes();
  if (early_[o] != nullptr) return {early_[o], bytes};
  if (fetched_.empty()) return {arena_.data() + offset_of(o), bytes};
  fetched_[o].resize(bytes);
  arena_.read(offset_of(o), fetched_[o]);
  return fetched_[o];
}

}  // namespace trireme::runtime
