#include <algorithm>
#include <cstring>

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"

namespace trireme::ops {
namespace {

// A tensor as `rows` rows of bytes: one per index before `dim`, holding all that follows.
std::int64_t rows_of(const TensorType& type, int dim) { return type.shape.elements(0, dim); }
std::int64_t row_bytes(const TensorType& type, int dim) {
  return type.shape.elements(dim, type.shape.rank()) * static_cast<std::int64_t>(size_of(type.dtype));
}

// The rows of a tensor and of a slice of it, in bytes.
struct SlicedRows {
  std::int64_t count, whole, slice;
  std::int64_t skip;  // bytes of a row before its slice

  SlicedRows(const ir::KernelSpec& spec, const TensorType& all, const TensorType& some) {
    const auto dim = static_cast<int>(spec.attributes.integer("dim"));
    count = rows_of(all, dim);
    whole = row_bytes(all, dim);
    slice = row_bytes(some, dim);
    skip = spec.attributes.integer("start") * row_bytes(all, dim + 1);
  }
};

constexpr std::int64_t kTaskBytes = 1 << 16;

// Calls body(row, begin, end) over `rows` rows of `bytes` bytes each, about kTaskBytes to a task: several short rows,
// or a part of a long one.
template <class F>
void over_rows(ThreadPool& pool, std::int64_t rows, std::int64_t bytes, F&& body) {
  if (bytes == 0) return;
  if (bytes >= kTaskBytes) {
    const std::int64_t parts = (bytes + kTaskBytes - 1) / kTaskBytes;
    pool.run(rows * parts, [&](std::int64_t task) {
      const std::int64_t begin = task % parts * kTaskBytes;
      body(task / parts, begin, std::min(bytes, begin + kTaskBytes));
    });
  } else {
    pool.ranges(rows, kTaskBytes / bytes, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) body(row, std::int64_t{0}, bytes);
    });
  }
}

void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_slice_cpu(const ir::KernelSpec& spec) {
  return make_kernel([r = SlicedRows(spec, spec.inputs[0], spec.outputs[0])](const device::Launch& launch) {
    over_rows(*launch.pool, r.count, r.slice, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      copy(launch.out<std::byte>(0) + row * r.slice + begin, launch.in<std::byte>(0) + row * r.whole + r.skip + begin,
           end - begin);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_slice_grad_cpu(const ir::KernelSpec& spec) {
  return make_kernel([r = SlicedRows(spec, spec.outputs[0], spec.inputs[0])](const device::Launch& launch) {
    over_rows(*launch.pool, r.count, r.whole, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      std::byte* out = launch.out<std::byte>(0) + row * r.whole;
      const std::int64_t first = std::clamp(r.skip, begin, end);
      const std::int64_t last = std::clamp(r.skip + r.slice, begin, end);
      std::memset(out + begin, 0, static_cast<std::size_t>(first - begin));
      if (last > first) copy(out + first, launch.in<std::byte>(0) + row * r.slice + first - r.skip, last - first);
      std::memset(out + last, 0, static_cast<std::size_t>(end - last));
    });
  });
}

std::shared_ptr<device::Kernel> prepare_slice_update_cpu(const ir::KernelSpec& spec) {
  return make_kernel([r = SlicedRows(spec, spec.outputs[0], spec.inputs[1])](const device::Launch& launch) {
    auto* const out = launch.out<std::byte>(0);
    const auto* const x = launch.in<std::byte>(0);
    if (x != out)
      over_rows(*launch.pool, r.count, r.whole, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
        copy(out + row * r.whole + begin, x + row * r.whole + begin, end - begin);
      });
    over_rows(*launch.pool, r.count, r.slice, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      copy(out + row * r.whole + r.skip + begin, launch.in<std::byte>(1) + row * r.slice + begin, end - begin);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_concat_cpu(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const std::int64_t rows = rows_of(spec.outputs[0], dim);
  const std::int64_t to = row_bytes(spec.outputs[0], dim);
  std::vector<std::int64_t> widths;
  for (const TensorType& input : spec.inputs) widths.push_back(row_bytes(input, dim));
  return make_kernel([=](const device::Launch& launch) {
    over_rows(*launch.pool, rows, to, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      std::byte* out = launch.out<std::byte>(0) + row * to;
      std::int64_t start = 0;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        const std::int64_t first = std::max(start, begin);
        const std::int64_t last = std::min(start + widths[i], end);
        if (last > first) copy(out + first, launch.in<std::byte>(i) + row * widths[i] + first - start, last - first);
        start += widths[i];
      }
    });
  });
}

}  // namespace trireme::ops
