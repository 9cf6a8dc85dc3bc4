#include "support/accumulate_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "support/guarded.h"
#include "trireme/device/arena.h"
#include "trireme/device/stream.h"
#include "trireme/ops/all.h"

namespace trireme::testing {
namespace {

std::vector<std::byte> bytes_of(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  std::byte* const to = bytes.data();
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
  return bytes;
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

  const device::Kind device = test_device();
  if (!op.kernels.contains(device)) GTEST_SKIP() << c.op << " has no " << device::name_of(device) << " kernel";
  const ir::KernelDef& kernel = op.kernels.at(device);

  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor t{inputs[i], {}};
    if (inputs[i].present) t.data.resize(static_cast<std::size_t>(inputs[i].elements()));
    const bool given = c.fill && !is_float(inputs[i].dtype);
    for (std::size_t e = 0; e < t.data.size(); ++e) t[e] = given ? c.fill(i, e) : sample(i, e);
    tensors.push_back(std::move(t));
  }
  std::vector<double> before(static_cast<std::size_t>(outputs[0].elements()));
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = sample(5, i);
  std::vector<double> expected = c.reference(tensors)[0].data;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];

  std::vector<std::vector<double>> results;
  for (const int threads : {1, 3}) {
    const ir::KernelSpec spec{inputs, outputs, attributes, threads, true};
    // Operands, results and workspace one behind the other, 64-byte aligned, as kernels may expect.
    std::size_t end = 0;
    const auto place = [&](std::size_t bytes) { return std::exchange(end, (end + bytes + 63) / 64 * 64); };
    std::vector<std::size_t> in;
    in.reserve(inputs.size());
    for (const TensorType& type : inputs) in.push_back(place(type.bytes()));
    std::vector<std::size_t> out;
    out.reserve(outputs.size());
    for (const TensorType& type : outputs) out.push_back(place(type.bytes()));
    const std::size_t workspace = place(kernel.workspace ? kernel.workspace(spec) : 0);
    const device::Arena arena(end, device);
    std::vector<const void*> in_pointers;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      in_pointers.push_back(inputs[i].present ? arena.data() + in[i] : nullptr);
      if (inputs[i].present) arena.write(in[i], bytes_of(tensors[i].data, inputs[i].dtype));
    }
    std::vector<void*> out_pointers;
    out_pointers.reserve(out.size());
    for (const std::size_t offset : out) out_pointers.push_back(arena.data() + offset);
    arena.write(out[0], bytes_of(before, outputs[0].dtype));
    ThreadPool pool(threads);
    const auto streams = device::make_streams(device);
    device::Launch launch;
    launch.inputs = in_pointers;
    launch.outputs = out_pointers;
    launch.workspace = arena.data() + workspace;
    launch.pool = &pool;
    launch.native_stream = streams->native();
    kernel.prepare(spec)->launch(launch);
    streams->synchronize();
    std::vector<std::byte> result(outputs[0].bytes());
    arena.read(out[0], result);
    results.push_back(read(result.data(), outputs[0]));
    EXPECT_LE(relative_error(results.back(), expected), c.tolerance) << c.op << " with " << threads << " threads";
  }
  EXPECT_EQ(results[0], results[1]) << c.op << ": the number of threads shows";
}

}  // namespace trireme::testing
