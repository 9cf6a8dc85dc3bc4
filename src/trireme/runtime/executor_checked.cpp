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

}  // namespace

std::optional<Executor::BadTensor> Executor::inspect(std::size_t i) const {
  const Instruction& instruction = program_.instructions[i];
  if (instruction.kind == Instruction::Kind::store) return std::nullopt;
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    const void* data = prepared_[i].outputs[o];
    std::vector<std::byte> copy;
    if (queue_ && instruction.on_host) {
      queue_->synchronize();
    } else if (queue_) {
      copy = on_host(data, instruction.outputs[o].type.bytes());
      data = copy.data();
    }
    if (const auto what = find_bad(data, instruction.outputs[o].type)) {
      const std::string& buffer = program_.buffers[static_cast<std::size_t>(instruction.outputs[o].buffer)].name;
      return BadTensor{i, program::kind_of(instruction), o == 0 ? instruction.name : buffer, instruction.micro, *what};
    }
  }
  return std::nullopt;
}

std::optional<Executor::BadTensor> Executor::run_checked() {
  check_bound();
  ++runs_;
  failed_ = false;
  failure_ = nullptr;
  if (queue_) make_ready();
  std::optional<BadTensor> bad;
  // One instruction after another, in program order, which satisfies every wait: order matters more than speed here.
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    if (!failed_) try {
        execute(i);
        if (!bad && program_.instructions[i].kind != Instruction::Kind::input) bad = inspect(i);
      } catch (...) {
        record_failure(i);
      }
    record_event(i);
  }
  if (failure_) std::rethrow_exception(failure_);
  return bad;
}

}  // namespace trireme::runtime
