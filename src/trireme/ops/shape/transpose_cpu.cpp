#include <algorithm>
#include <cstring>

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"

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

// y[i·to + j] = x[j·from + i]: rows of x become columns of y. Tiles of 16 by 16 keep both sides' lines in cache.
template <class T>
void transpose_plane(const T* x, T* y, std::int64_t rows, std::int64_t columns, std::int64_t from, std::int64_t to) {
  constexpr std::int64_t kTile = 16;
  T tile[kTile][kTile];
  std::int64_t i0 = 0;
  for (; i0 + kTile <= columns; i0 += kTile) {
    std::int64_t j0 = 0;
    for (; j0 + kTile <= rows; j0 += kTile) {
      for (std::int64_t j = 0; j < kTile; ++j) std::memcpy(tile[j], x + (j0 + j) * from + i0, sizeof(tile[j]));
      for (std::int64_t i = 0; i < kTile; ++i) {
        T* out = y + (i0 + i) * to + j0;
        for (std::int64_t j = 0; j < kTile; ++j) out[j] = tile[j][i];
      }
    }
    for (std::int64_t i = i0; i < i0 + kTile; ++i)
      for (std::int64_t j = j0; j < rows; ++j) y[i * to + j] = x[j * from + i];
  }
  for (; i0 < columns; ++i0)
    for (std::int64_t j = 0; j < rows; ++j) y[i0 * to + j] = x[j * from + i0];
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
