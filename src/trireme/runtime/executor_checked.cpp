#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/program/print.h"
#include "trireme/runtime/executor.h"

// A run that looks at every output.
namespace trireme::runtime {

using program::Instruction;

namespace {

std::optional<std::string> find_bad(const void* data, const TensorType& type) {
  if (!is_float(type.dtype)) return std::nullopt;
  return dispatch(type.dtype, [&](auto zero) -> std::optional<std::string> {
    using T = decltype(zero);
    const T* values = static_cast<const T*>(data);
    for (std::int64_t i = 0; i < type.elements(); ++i) {
      double value = 0;
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
        value = static_cast<double>(static_cast<float>(values[i]));
      else
        value = static_cast<double>(values[i]);
      if (!std::isfinite(value))
        return fmt::format("{} at element {}", std::isnan(value) ? "NaN" : value > 0 ? "+inf" : "-inf", i);
    }
    return std::nullopt;
  });
}

// Whether others have a part in what it puts out.
bool brings(const Instruction& instruction) {
  return instruction.kind == Instruction::Kind::collective || instruction.kind == Instruction::Kind::receive ||
         instruction.kind == Instruction::Kind::pull;
}

}  // namespace

std::optional<Executor::BadTensor> Executor::inspect(std::size_t i) const {
  const Instruction& instruction = program_.instructions[i];
  if (instruction.kind == Instruction::Kind::store || instruction.kind == Instruction::Kind::input) return std::nullopt;
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    const TensorType& type = instruction.outputs[o].type;
    const program::Buffer& buffer = program_.buffers[static_cast<std::size_t>(instruction.outputs[o].buffer)];
    const auto* data = static_cast<const std::byte*>(prepared_[i].outputs[o]);
    std::vector<std::byte> copy;
    if (buffer.tier == 0 && program_.device != device::Kind::cpu) {
      copy.resize(type.bytes());
      arena_.read(static_cast<std::size_t>(data - arena_.data()), copy);
      data = copy.data();
    }
    if (const auto what = find_bad(data, type))
      return BadTensor{
          i, program::kind_of(instruction), o == 0 ? instruction.name : buffer.name, instruction.micro, *what, false};
  }
  return std::nullopt;
}

// Nothing writes over an instruction's outputs before its event, so they can be read until then.
void Executor::look_at(std::size_t i) {
  const auto bad = inspect(i);
  if (!bad) return;
  const Instruction& instruction = program_.instructions[i];
  const std::lock_guard lock(first_bad_->mutex);
  if (brings(instruction)) first_bad_->came = std::min(first_bad_->came, i);
  // What another stage has made is that stage's to report.
  if (instruction.between_stages()) return;
  if (!first_bad_->tensor || i < first_bad_->tensor->instruction) first_bad_->tensor = bad;
}

void Executor::run_one_by_one() {
  streams_->fork();
  const auto one = [](void* self, std::size_t i) { static_cast<Executor*>(self)->run_one(i); };
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const device::Streams::Work work{one, this, i, static_cast<std::size_t>(program_.instructions[i].stream)};
    streams_->issue({&work, 1});
    if (failure_.happened()) continue;
    // A send ends when the other rank receives, which may be after that one's own send to this rank.
    if (program_.instructions[i].kind != Instruction::Kind::send)
      failure_.guard(i, [&] { synchronize(device::Streams::Set{1} << work.stream); });
    if (!failure_.happened()) failure_.guard(i, [&] { look_at(i); });
  }
  finish_streams();
}

std::optional<Executor::BadTensor> Executor::run_checked() {
  staging_.settle(true);  // whatever was expected, this run comes first
  FirstBad found;
  const auto stop = [this](const FirstBad*) { first_bad_ = nullptr; };
  const std::unique_ptr<FirstBad, decltype(stop)> looking(first_bad_ = &found, stop);
  run();
  if (found.tensor) found.tensor->from_others = found.came <= found.tensor->instruction;
  return found.tensor;
}

}  // namespace trireme::runtime
