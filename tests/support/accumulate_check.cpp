#include "support/accumulate_check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "trireme/device/kernel.h"
#include "trireme/ops/all.h"

namespace trireme::testing {
namespace {

// 64-byte aligned, as kernels may expect.
struct Buffer {
  explicit Buffer(std::size_t size) : bytes(size + 64), data(align(bytes.data())) {}
  static std::byte* align(std::byte* p) { return p + (64 - reinterpret_cast<std::uintptr_t>(p) % 64) % 64; }
  std::vector<std::byte> bytes;
  std::byte* data;
};

void write(const std::vector<double>& values, DType dtype, std::byte* to) {
  dispatch(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      if constexpr (std::is_arithmetic_v<T>)
        element = static_cast<T>(values[i]);
      else
        element = T(static_cast<float>(values[i]));
      std::memcpy(to + i * sizeof(T), &element, sizeof(T));
    }
  });
}

std::vector<double> read(const std::byte* from, const TensorType& type) {
  std::vector<double> values(static_cast<std::size_t>(type.elements()));
  dispatch(type.dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, from + i * sizeof(T), sizeof(T));
      if constexpr (std::is_arithmetic_v<T>)
        values[i] = static_cast<double>(element);
      else
        values[i] = static_cast<double>(static_cast<float>(element));
    }
  });
  return values;
}

// Small numbers that every dtype holds exactly.
double sample(std::size_t salt, std::size_t i) { return static_cast<double>((i * 37 + salt * 11) % 17) / 8.0 - 1.0; }

}  // namespace

void check_accumulates(const OpCase& c) {
  static const ir::Registry registry = ops::builtin();
  const ir::OpDef& op = registry.at(c.op);
  ASSERT_TRUE(op.traits.accumulates);
  ir::Attributes attributes = c.attributes;
  for (const ir::AttributeSpec& spec : op.attributes)
    if (attributes.find(spec.name) == nullptr) attributes.set(spec.name, spec.fallback);
  std::vector<TensorType> inputs = c.inputs;
  inputs.resize(op.operands.size(), TensorType::none());
  const ir::Types outputs = op.infer(inputs, attributes);

  std::vector<Tensor> tensors;
  std::vector<Buffer> in;
  std::vector<const void*> in_pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor t{inputs[i], {}};
    if (inputs[i].present) t.data.resize(static_cast<std::size_t>(inputs[i].elements()));
    for (std::size_t e = 0; e < t.data.size(); ++e) t[e] = sample(i, e);
    in.emplace_back(inputs[i].bytes());
    if (inputs[i].present) write(t.data, inputs[i].dtype, in.back().data);
    in_pointers.push_back(inputs[i].present ? in.back().data : nullptr);
    tensors.push_back(std::move(t));
  }
  std::vector<double> before(static_cast<std::size_t>(outputs[0].elements()));
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = sample(5, i);
  std::vector<double> expected = c.reference(tensors)[0].data;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];

  std::vector<std::vector<double>> results;
  for (const int threads : {1, 3}) {
    std::vector<Buffer> out;
    std::vector<void*> out_pointers;
    for (const TensorType& type : outputs) {
      out.emplace_back(type.bytes());
      out_pointers.push_back(out.back().data);
    }
    write(before, outputs[0].dtype, out[0].data);
    const ir::KernelSpec spec{inputs, outputs, attributes, threads, true};
    const ir::KernelDef& kernel = op.kernels.at(device::Kind::cpu);
    Buffer workspace(kernel.workspace ? kernel.workspace(spec) : 0);
    ThreadPool pool(threads);
    device::Launch launch;
    launch.inputs = in_pointers;
    launch.outputs = out_pointers;
    launch.workspace = workspace.data;
    launch.pool = &pool;
    kernel.prepare(spec)->launch(launch);
    results.push_back(read(out[0].data, outputs[0]));
    EXPECT_LE(relative_error(results.back(), expected), c.tolerance) << c.op << " with " << threads << " threads";
  }
  EXPECT_EQ(results[0], results[1]) << c.op << ": the number of threads shows";
}

}  // namespace trireme::testing
