#include "trireme/ops/cuda/common.h"
#include "trireme/ops/shape/cuda_kernels.h"

// Ops that only move elements: transpose, slice, slice_grad, slice_update, concat, sequence_slice.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

std::int64_t rows_of(const TensorType& type, int dim) { return type.shape.elements(0, dim); }
std::int64_t row_elements(const TensorType& type, int dim) { return type.shape.elements(dim, type.shape.rank()); }
std::int64_t step_elements(const TensorType& type, int dim) { return type.shape.elements(dim + 1, type.shape.rank()); }

// Calls f with an unsigned integer of the elements' size.
template <class F>
decltype(auto) dispatch_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

// to[row][to_skip … to_skip + take) = from[row][from_skip …); the rest of a row of `to` that is [0, to_row) is left, or
// with `zero` set to 0.
struct Rows {
  std::int64_t rows, from_row, from_skip, to_row, to_skip, take;
  bool zero;
};

template <class T>
__global__ void rows_kernel(const T* from, T* to, Rows r) {
  const std::int64_t width = r.zero ? r.to_row : r.take;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= r.rows * width) return;
  const std::int64_t row = i / width, at = i % width - (r.zero ? r.to_skip : 0);
  T value{};
  if (at >= 0 && at < r.take) value = from[row * r.from_row + r.from_skip + at];
  to[row * r.to_row + r.to_skip + at] = value;
}

template <class T>
void copy_rows(const device::Launch& launch, std::size_t input, const Rows& r) {
  const std::int64_t n = r.rows * (r.zero ? r.to_row : r.take);
  if (n == 0) return;
  rows_kernel<T>
      <<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.in<T>(input), launch.out<T>(0), r);
  device::cuda::launched("copy_rows");
}

std::shared_ptr<device::Kernel> one_copy(DType dtype, const Rows& r) {
  return dispatch_size(dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([r](const device::Launch& launch) { copy_rows<T>(launch, 0, r); });
  });
}

template <class T>
__global__ void sequence_slice_kernel(const T* from, T* to, const std::int32_t* position, std::int64_t whole,
                                      std::int64_t part, std::int64_t width, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t first = position == nullptr ? 0 : *position;
  const std::int64_t row = i / width;
  std::int64_t source = first + row % part;
  source = source < 0 ? 0 : source < whole ? source : whole - 1;
  to[i] = from[(row / part * whole + source) * width + i % width];
}

constexpr int kMaxDims = Shape::kMaxRank;
struct Permutation {
  std::int64_t extent[kMaxDims];  // of the result's dimensions
  std::int64_t stride[kMaxDims];  // of each, in the operand
  int rank = 0;
};

template <class T>
__global__ void transpose_kernel(const T* x, T* y, Permutation p, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  std::int64_t rest = i, source = 0;
  for (int d = p.rank; d-- > 0;) {
    source += rest % p.extent[d] * p.stride[d];
    rest /= p.extent[d];
  }
  y[i] = x[source];
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_slice_cuda(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const std::int64_t to = row_elements(spec.outputs[0], dim);
  return one_copy(spec.inputs[0].dtype,
                  {rows_of(spec.inputs[0], dim), row_elements(spec.inputs[0], dim),
                   spec.attributes.integer("start") * step_elements(spec.inputs[0], dim), to, 0, to, false});
}

std::shared_ptr<device::Kernel> prepare_slice_grad_cuda(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const std::int64_t from = row_elements(spec.inputs[0], dim);
  return one_copy(spec.inputs[0].dtype,
                  {rows_of(spec.outputs[0], dim), from, 0, row_elements(spec.outputs[0], dim),
                   spec.attributes.integer("start") * step_elements(spec.inputs[0], dim), from, true});
}

std::shared_ptr<device::Kernel> prepare_slice_update_cuda(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const std::int64_t from = row_elements(spec.inputs[1], dim), to = row_elements(spec.outputs[0], dim);
  const std::int64_t rows = rows_of(spec.outputs[0], dim);
  const Rows part{rows, from, 0, to, spec.attributes.integer("start") * step_elements(spec.inputs[1], dim),
                  from, false};
  const Rows all{rows, to, 0, to, 0, to, false};
  return dispatch_size(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([part, all](const device::Launch& launch) {
      if (launch.inputs[0] != launch.outputs[0]) copy_rows<T>(launch, 0, all);
      copy_rows<T>(launch, 1, part);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_concat_cuda(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  std::vector<Rows> parts;
  std::int64_t start = 0;
  for (const TensorType& input : spec.inputs) {
    const std::int64_t width = row_elements(input, dim);
    parts.push_back({rows_of(input, dim), width, 0, row_elements(spec.outputs[0], dim), start, width, false});
    start += width;
  }
  return dispatch_size(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([parts](const device::Launch& launch) {
      for (std::size_t i = 0; i < parts.size(); ++i) copy_rows<T>(launch, i, parts[i]);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_sequence_slice_cuda(const ir::KernelSpec& spec) {
  const auto dim = static_cast<int>(spec.attributes.integer("dim"));
  const std::int64_t whole = spec.inputs[0].shape[dim], part = spec.attributes.integer("extent");
  const std::int64_t width = step_elements(spec.inputs[0], dim), n = spec.outputs[0].elements();
  return dispatch_size(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (n == 0) return;
      sequence_slice_kernel<T><<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.out<T>(0), launch.in<std::int32_t>(1), whole, part, width, n);
      device::cuda::launched("sequence_slice");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_transpose_cuda(const ir::KernelSpec& spec) {
  const std::vector<std::int64_t>& perm = spec.attributes.integers("perm");
  const Shape& from = spec.inputs[0].shape;
  Permutation p;
  p.rank = from.rank();
  for (int d = 0; d < p.rank; ++d) {
    const auto source = static_cast<int>(perm[static_cast<std::size_t>(d)]);
    p.extent[d] = from[source];
    p.stride[d] = from.elements(source + 1, from.rank());
  }
  return dispatch_size(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([p, n = spec.outputs[0].elements()](const device::Launch& launch) {
      if (n == 0) return;
      transpose_kernel<T>
          <<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0), p, n);
      device::cuda::launched("transpose");
    });
  });
}

}  // namespace trireme::ops
