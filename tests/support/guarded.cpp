#include "support/guarded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/allocations.h"
#include "trireme/core/error.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"
#include "trireme/runtime/executor.h"

namespace trireme::testing {
namespace {

constexpr std::size_t kGap = 128;
constexpr std::byte kPattern{0x5C};

void spread(program::Program& program) {
  std::size_t end = kGap;
  for (program::Buffer& b : program.buffers) {
    b.offset = end;
    end = program::aligned(b.offset + b.bytes) + kGap;
  }
  program.arena_bytes = end;
}

void check_gaps(const program::Program& program, const device::Arena& arena) {
  std::vector<std::byte> bytes(program.arena_bytes);
  arena.read(0, bytes);
  std::vector<bool> inside(program.arena_bytes, false);
  for (const program::Buffer& b : program.buffers)
    std::fill_n(inside.begin() + static_cast<std::ptrdiff_t>(b.offset), b.bytes, true);
  for (std::size_t i = 0; i < program.arena_bytes; ++i)
    if (!inside[i] && bytes[i] != kPattern) {
      for (const program::Buffer& b : program.buffers)
        if (i + kGap >= b.offset && i < b.offset + b.bytes + kGap)
          ADD_FAILURE() << "a kernel wrote outside buffer '" << b.name << "' (" << program::name_of(b.category)
                        << "), byte " << static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(b.offset)
                        << " of " << b.bytes;
      return;
    }
}

// Runs it as often as it takes until a run allocates nothing: the first work of a thread prepares what libraries keep
// for it, and a thread may get its first only later. A GPU's driver allocates as it likes.
void run_without_allocating(runtime::Executor& executor, int threads) {
  if (test_device() != device::Kind::cpu) return executor.run();
  constexpr std::size_t kFirstWork = std::size_t{4} << 10;
  Allocations run;
  for (int runs = 0; runs <= threads + 1; ++runs) {
    run = allocations_of([&] { executor.run(); });
    EXPECT_LE(run.bytes, kFirstWork * static_cast<std::size_t>(threads)) << "a kernel allocates, in run " << runs;
    EXPECT_LE(run.largest_in_onednn, most_for_onednn()) << "a kernel allocates, by oneDNN";
    if (runs > 0 && run.calls == 0) return;
  }
  ADD_FAILURE() << "a kernel allocates, whenever it runs: " << run.calls << " times, " << run.bytes << " bytes";
}

}  // namespace

device::Kind test_device() {
  const char* name = std::getenv("TRIREME_TEST_DEVICE");
  return name != nullptr && std::string_view(name) == "cuda" ? device::Kind::cuda : device::Kind::cpu;
}

bool has_kernels(const ir::Module& module) {
  bool all = true;
  for (const ir::Node& node : module.graph("micro").nodes) {
    if (node.op->traits.view || node.op->kernels.contains(test_device())) continue;
    ADD_FAILURE() << node.op->name << " has no " << device::name_of(test_device()) << " kernel";
    all = false;
  }
  return all;
}

std::vector<std::byte> to_bytes(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.type.bytes());
  dispatch(tensor.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < tensor.data.size(); ++i) {
      T value;
      if constexpr (std::is_arithmetic_v<T>)
        value = static_cast<T>(tensor.data[i]);
      else
        value = T(static_cast<float>(tensor.data[i]));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

Tensor from_bytes(const TensorType& type, const std::byte* data) {
  Tensor tensor = Tensor::zeros(type);
  dispatch(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < tensor.data.size(); ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      if constexpr (std::is_arithmetic_v<T>)
        tensor.data[i] = static_cast<double>(value);
      else
        tensor.data[i] = static_cast<double>(static_cast<float>(value));
    }
  });
  return tensor;
}

std::vector<Tensor> run_guarded(const ir::Module& module, const std::map<std::string, Tensor>& inputs,
                                const GuardedOptions& options) {
  program::LowerOptions lowering;
  lowering.threads = options.threads;
  lowering.device = test_device();
  lowering.reuse_in_place = false;
  program::Program program = program::lower(module, program::lay_out(module), lowering);
  program::check(program);
  if (options.in_place) {
    for (program::Instruction& instruction : program.instructions) {
      if (instruction.kind != program::Instruction::Kind::launch) continue;
      const program::BufferId shared = instruction.inputs[static_cast<std::size_t>(options.in_place->second)].buffer;
      const program::BufferId replaced = instruction.outputs[static_cast<std::size_t>(options.in_place->first)].buffer;
      instruction.outputs[static_cast<std::size_t>(options.in_place->first)].buffer = shared;
      for (program::NamedOutput& output : program.outputs)
        if (output.operand.buffer == replaced) output.operand.buffer = shared;
      break;
    }
  }
  spread(program);
  device::Arena arena(program.arena_bytes, program.device);
  arena.write(0, std::vector<std::byte>(arena.bytes(), kPattern));
  ThreadPool pool(options.threads);
  runtime::Executor executor(program, arena, pool);
  std::vector<std::vector<std::byte>> storage;
  for (const auto& [name, tensor] : inputs) {
    storage.push_back(to_bytes(tensor));
    executor.bind(name, 0, std::span<const std::byte>(storage.back()));
  }
  run_without_allocating(executor, options.threads);
  check_gaps(program, arena);
  std::vector<Tensor> outputs;
  for (const program::NamedOutput& output : program.outputs)
    outputs.push_back(from_bytes(output.operand.type, executor.output(output.name).data()));
  return outputs;
}

}  // namespace trireme::testing
