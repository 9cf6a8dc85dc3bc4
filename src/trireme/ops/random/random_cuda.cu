#include "trireme/ops/cuda/common.h"
#include "trireme/ops/random/cuda_kernels.h"
#include "trireme/ops/random/window.h"

// dropout and random_init, with the numbers of core/rng.h.
namespace trireme::ops {
namespace {

using namespace cuda;

struct Quad {
  std::uint32_t w[4];
};

__device__ __forceinline__ std::uint64_t mixed(std::uint64_t state) {
  std::uint64_t z = state + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// RandomStream{seed, site, step}.words(row, quad)
__device__ __forceinline__ Quad words(std::uint64_t seed, std::uint64_t site, std::uint64_t step, std::uint64_t row,
                                      std::uint64_t quad) {
  const std::uint64_t key = mixed(mixed(seed ^ 0x5851f42d4c957f2dULL) ^ site ^ (step * 0x9E3779B97F4A7C15ULL));
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(quad), c1 = static_cast<std::uint32_t>(quad >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(row), c3 = static_cast<std::uint32_t>(row >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c0, p1 = 0xCD9E8D57ULL * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

struct Places {
  const std::int64_t* at[RandomWindow::kMaxShifts];
};

// A thread has a quad of one row.
template <class T>
__global__ void dropout_kernel(const T* x, const std::int64_t* rng, T* y, std::uint64_t site, std::int32_t below,
                               float factor, std::int64_t rows, std::int64_t width) {
  const std::int64_t quads = (width + 3) / 4;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * quads) return;
  const std::int64_t row = i / quads, quad = i % quads;
  const Quad q = words(static_cast<std::uint64_t>(rng[0]), site, static_cast<std::uint64_t>(rng[1]),
                       static_cast<std::uint64_t>(rng[2] + row), static_cast<std::uint64_t>(quad));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t column = quad * 4 + j;
    if (column >= width) break;
    const bool kept = static_cast<std::int32_t>(q.w[j] >> 8) > below;
    y[row * width + column] = narrow<T>(kept ? wide(x[row * width + column]) * factor : 0.0F);
  }
}

// The same of a shard of each row: a thread has an element.
template <class T>
__global__ void sharded_dropout_kernel(const T* x, const std::int64_t* rng, Places places, T* y, std::uint64_t site,
                                       std::int32_t below, float factor, RandomWindow window, std::int64_t rows,
                                       std::int64_t width) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * width) return;
  const std::int64_t element = window.element(i % width, places.at);
  const Quad q =
      words(static_cast<std::uint64_t>(rng[0]), site, static_cast<std::uint64_t>(rng[1]),
            static_cast<std::uint64_t>(rng[2] + i / width), static_cast<std::uint64_t>(element < 0 ? 0 : element / 4));
  const bool kept = element >= 0 && static_cast<std::int32_t>(q.w[element % 4] >> 8) > below;
  y[i] = narrow<T>(kept ? wide(x[i]) * factor : 0.0F);
}

__device__ __forceinline__ float unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

enum class Kind { constant, normal, uniform };

template <class T>
__global__ void random_init_kernel(const std::int64_t* seed, Places places, T* y, Kind kind, float a,
                                   std::uint64_t site, RandomWindow window, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t element = window.element(i, places.at);
  float value = a;
  if (element < 0) {
    value = 0;
  } else if (kind != Kind::constant) {
    const Quad q = words(static_cast<std::uint64_t>(*seed), site, 0, 0, static_cast<std::uint64_t>(element / 4));
    const int j = static_cast<int>(element % 4);
    if (kind == Kind::uniform) {
      value = (2 * unit(q.w[j]) - 1) * a;
    } else {
      const std::uint32_t u = q.w[j / 2 * 2], v = q.w[j / 2 * 2 + 1];
      // By way of double, whose results round to what a CPU's library gives.
      const float uniform = (static_cast<float>(u >> 8) + 0.5F) * 0x1p-24F;
      const float radius = sqrtf(-2.0F * static_cast<float>(log(static_cast<double>(uniform))));
      const float angle = 2.0F * 3.14159265358979F * unit(v);
      const double turn = j % 2 == 0 ? cos(static_cast<double>(angle)) : sin(static_cast<double>(angle));
      value = radius * static_cast<float>(turn) * a;
    }
  }
  y[i] = narrow<T>(value);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_dropout_cuda(const ir::KernelSpec& spec) {
  const double p = spec.attributes.real("p");
  const auto factor = static_cast<float>(1 / (1 - p));
  const auto below = static_cast<std::int32_t>(std::ceil(p * 0x1p24)) - 1;
  const auto site = static_cast<std::uint64_t>(spec.attributes.integer("site"));
  const std::int64_t rows = spec.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : spec.inputs[0].elements() / rows;
  const RandomWindow window(spec.attributes);
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (rows * width == 0) return;
      if (!window.all()) {
        Places places{};
        for (int s = 0; s < window.shifts(); ++s)
          places.at[s] = launch.in<std::int64_t>(2 + static_cast<std::size_t>(s));
        sharded_dropout_kernel<T><<<blocks(pieces(rows * width, 256)), 256, 0, stream_of(launch)>>>(
            launch.in<T>(0), launch.in<std::int64_t>(1), places, launch.out<T>(0), site, below, factor, window, rows,
            width);
        device::cuda::launched("dropout");
        return;
      }
      dropout_kernel<T><<<blocks(pieces(rows * pieces(width, 4), 256)), 256, 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.in<std::int64_t>(1), launch.out<T>(0), site, below, factor, rows, width);
      device::cuda::launched("dropout");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_random_init_cuda(const ir::KernelSpec& spec) {
  const std::string& name = spec.attributes.text("kind");
  const Kind kind = name == "normal" ? Kind::normal : name == "uniform" ? Kind::uniform : Kind::constant;
  const float a = name == "zeros" ? 0.0F : static_cast<float>(spec.attributes.real("a"));
  const auto site = static_cast<std::uint64_t>(spec.attributes.integer("site"));
  const RandomWindow window(spec.attributes);
  const std::int64_t n = spec.outputs[0].elements();
  if (!is_float(spec.outputs[0].dtype))  // zeros, whatever the window
    return make_kernel([bytes = spec.outputs[0].bytes()](const device::Launch& launch) {
      TRI_CUDA(cudaMemsetAsync(launch.outputs[0], 0, bytes, stream_of(launch)));
    });
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (n == 0) return;
      Places places{};
      for (int p = 0; p < window.shifts(); ++p) places.at[p] = launch.in<std::int64_t>(1 + static_cast<std::size_t>(p));
      random_init_kernel<T><<<blocks(pieces(n, 256)), 256, 0, stream_of(launch)>>>(
          launch.in<std::int64_t>(0), places, launch.out<T>(0), kind, a, site, window, n);
      device::cuda::launched("random_init");
    });
  });
}

}  // namespace trireme::ops
