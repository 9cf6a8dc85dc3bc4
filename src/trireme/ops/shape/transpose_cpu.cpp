#include <algorithm>
#include <cstring>

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

// One dimension of the output, outermost first; strides count elements.
struct Axis {
  std::int64_t extent;
  std::int64_t from;  // stride in x
  std::int64_t to;    // stride in y
};

// The output's dimensions without those of extent 1, and with neighbours joined that are neighbours in x too.
std::vector<Axis> axes_of(const Shape& x, const std::vector<std::int64_t>& perm) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(x.rank()), 1);
  for (int i = x.rank() - 2; i >= 0; --i)
    strides[static_cast<std::size_t>(i)] = strides[static_cast<std::size_t>(i) + 1] * x[i + 1];
  std::vector<Axis> axes;
  for (const std::int64_t d : perm) {
    const Axis axis = {x[static_cast<int>(d)], strides[static_cast<std::size_t>(d)], 1};
    if (axis.extent == 1) continue;
    if (!axes.empty() && axes.back().from == axis.from * axis.extent) {
      axes.back().extent *= axis.extent;
      axes.back().from = axis.from;
    } else {
      axes.push_back(axis);
    }
  }
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    axes[i].to = stride;
    stride *= axes[i].extent;
  }
  return axes;
}

// Transposes a square of as many rows as a 16-byte vector has elements. Interleaving each row of the upper half with
// its counterpart in the lower half, log2(rows) times over, is a transposition.
template <class T>
HWY_INLINE void transpose_square(const T* x, std::int64_t from, T* y, std::int64_t to) {
  namespace hn = simd::hn;
  constexpr hn::FixedTag<T, 16 / sizeof(T)> d;
  constexpr std::size_t n = 16 / sizeof(T);
  hn::Vec<decltype(d)> rows[n];
  hn::Vec<decltype(d)> mixed[n];
  for (std::size_t i = 0; i < n; ++i) rows[i] = hn::LoadU(d, x + static_cast<std::int64_t>(i) * from);
  for (std::size_t done = 1; done < n; done *= 2) {
    for (std::size_t i = 0; i < n / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + n / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + n / 2]);
    }
    for (std::size_t i = 0; i < n; ++i) rows[i] = mixed[i];
  }
  for (std::size_t i = 0; i < n; ++i) hn::StoreU(rows[i], d, y + static_cast<std::int64_t>(i) * to);
}

// y[i·to + j] = x[j·from + i]: rows of x become columns of y. Cache lines of y are completed before the next are begun.
template <class T>
void transpose_plane(const T* x, T* y, std::int64_t rows, std::int64_t columns, std::int64_t from, std::int64_t to) {
  constexpr std::int64_t kSquare = 16 / sizeof(T);
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t whole_rows = rows / kLine * kLine;
  const std::int64_t whole_columns = columns / kSquare * kSquare;
  for (std::int64_t line = 0; line < whole_rows; line += kLine)
    for (std::int64_t i = 0; i < whole_columns; i += kSquare)
      for (std::int64_t j = line; j < line + kLine; j += kSquare)
        transpose_square(x + j * from + i, from, y + i * to + j, to);
  for (std::int64_t i = 0; i < columns; ++i)
    for (std::int64_t j = i < whole_columns ? whole_rows : 0; j < rows; ++j) y[i * to + j] = x[j * from + i];
}

// Offsets in x and y of the index'th combination of the given axes.
std::pair<std::int64_t, std::int64_t> offsets(const std::vector<Axis>& axes, std::int64_t index) {
  std::int64_t from = 0;
  std::int64_t to = 0;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::int64_t at = index % axes[i].extent;
    index /= axes[i].extent;
    from += at * axes[i].from;
    to += at * axes[i].to;
  }
  return {from, to};
}

template <class T>
std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  std::vector<Axis> outer = axes_of(spec.inputs[0].shape, spec.attributes.integers("perm"));
  const std::int64_t elements = spec.inputs[0].elements();
  if (elements == 0) return make_kernel([](const device::Launch&) {});
  if (outer.empty()) outer.push_back({1, 1, 1});
  const Axis last = outer.back();
  outer.pop_back();
  if (last.from == 1) {  // whole rows move
    const std::int64_t rows = elements / last.extent;
    const std::int64_t block = std::max<std::int64_t>(1, 16384 / last.extent);
    return make_kernel([=](const device::Launch& launch) {
      launch.pool->ranges(rows, block, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto [from, to] = offsets(outer, row);
          std::memcpy(launch.out<T>(0) + to, launch.in<T>(0) + from, static_cast<std::size_t>(last.extent) * sizeof(T));
        }
      });
    });
  }
  // The plane of the output's last dimension and the one that is contiguous in x, cut in bands along the latter.
  const auto inner = std::find_if(outer.begin(), outer.end(), [](const Axis& a) { return a.from == 1; });
  const Axis band = *inner;
  outer.erase(inner);
  constexpr std::int64_t kBand = 64;
  const std::int64_t bands = (band.extent + kBand - 1) / kBand;
  // Long rows are cut too, so that a band's part of x stays in cache.
  constexpr std::int64_t kRows = 256;
  const std::int64_t parts = (last.extent + kRows - 1) / kRows;
  const std::int64_t planes = elements / last.extent / band.extent;
  return make_kernel([=](const device::Launch& launch) {
    launch.pool->run(planes * bands * parts, [&](std::int64_t task) {
      const auto [from, to] = offsets(outer, task / (bands * parts));
      const std::int64_t i = task / parts % bands * kBand;
      const std::int64_t j = task % parts * kRows;
      transpose_plane(launch.in<T>(0) + from + i + j * last.from, launch.out<T>(0) + to + i * band.to + j,
                      std::min(kRows, last.extent - j), std::min(kBand, band.extent - i), last.from, band.to);
    });
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_transpose_cpu(const ir::KernelSpec& spec) {
  switch (size_of(spec.inputs[0].dtype)) {
    case 1: return prepare<std::uint8_t>(spec);
    case 2: return prepare<std::uint16_t>(spec);
    case 4: return prepare<std::uint32_t>(spec);
    default: return prepare<std::uint64_t>(spec);
  }
}

}  // namespace trireme::ops
