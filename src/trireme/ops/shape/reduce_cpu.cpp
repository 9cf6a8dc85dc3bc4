#include <algorithm>
#include <limits>

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"
#include "trireme/ops/shape/dim_groups.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;
using simd::Vec;

struct Sum {
  static constexpr float kNeutral = 0;
  static HWY_INLINE Vec join(Vec a, Vec b) { return a + b; }
  static double join(double a, double b) { return a + b; }
  static float lanes(Vec v) { return simd::sum(v); }
};

struct Max {
  static constexpr float kNeutral = -std::numeric_limits<float>::infinity();
  static HWY_INLINE Vec join(Vec a, Vec b) { return hn::Max(a, b); }
  static double join(double a, double b) { return std::max(a, b); }
  static float lanes(Vec v) { return simd::max(v); }
};

// How the work is cut. An output depends on `depth` elements (inner dimension reduced) or rows (inner dimension kept),
// which are cut in chunks only when the outputs are too few to be the tasks.
struct Plan {
  DimGroups groups;
  std::int64_t outer;  // combinations of the kept outer groups
  std::int64_t rows;   // combinations of the reduced outer groups
  std::int64_t depth;
  std::int64_t chunks;
  float scale = 1;
  bool accumulate = false;

  explicit Plan(const ir::KernelSpec& spec)
      : groups(spec.inputs[0].shape, spec.attributes.integers("dims")),
        outer(DimGroups::count(groups.plain)),
        rows(DimGroups::count(groups.marked)),
        depth(groups.inner_marked ? rows * groups.inner : rows),
        accumulate(spec.accumulate) {
    const std::int64_t elements = spec.inputs[0].elements();
    const std::int64_t wanted = elements / std::max<std::int64_t>(1, outer) / 32768;
    chunks = outer >= 32 ? 1 : std::clamp<std::int64_t>(wanted, 1, std::clamp<std::int64_t>(depth, 1, 32));
    if (spec.attributes.text("kind") == "mean")
      scale = static_cast<float>(static_cast<double>(spec.outputs[0].elements()) /
                                 static_cast<double>(std::max<std::int64_t>(1, elements)));
  }
  std::int64_t begin(std::int64_t chunk) const { return depth * chunk / chunks; }
  // f64 partials of single numbers, or f32 partials of rows.
  std::size_t workspace() const {
    if (groups.inner_marked) return static_cast<std::size_t>(outer * chunks) * sizeof(double);
    return chunks == 1 ? 0 : static_cast<std::size_t>(outer * chunks * groups.inner) * sizeof(float);
  }
};

// Reduces up to a few thousand neighbouring elements in f32.
template <class Op, class T>
float reduce_run(const T* x, std::int64_t n) {
  constexpr std::int64_t step = simd::kLanes;
  Vec a = simd::set(Op::kNeutral);
  Vec b = a;
  Vec c = a;
  Vec d = a;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = Op::join(a, simd::load(x + i));
    b = Op::join(b, simd::load(x + i + step));
    c = Op::join(c, simd::load(x + i + 2 * step));
    d = Op::join(d, simd::load(x + i + 3 * step));
  }
  for (; i + step <= n; i += step) a = Op::join(a, simd::load(x + i));
  if (i < n) b = Op::join(b, simd::keep_n(simd::load_n(x + i, n - i), n - i, Op::kNeutral));
  return Op::lanes(Op::join(Op::join(a, b), Op::join(c, d)));
}

template <class Op, class T, class Out>
void reduce_inner(const Plan& plan, const device::Launch& launch) {
  constexpr std::int64_t kRun = 4096;
  const std::int64_t inner = plan.groups.inner;
  auto* partials = static_cast<double*>(launch.workspace);
  const std::int64_t per_task = std::max<std::int64_t>(1, 16384 * plan.chunks / std::max<std::int64_t>(1, plan.depth));
  launch.pool->ranges(plan.outer * plan.chunks, per_task, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const T* x = launch.in<T>(0) + DimGroups::offset(plan.groups.plain, task / plan.chunks);
      const std::int64_t end = plan.begin(task % plan.chunks + 1);
      double total = Op::kNeutral;
      for (std::int64_t at = plan.begin(task % plan.chunks); at < end;) {
        const std::int64_t within = at % inner;
        const std::int64_t count = std::min({inner - within, end - at, kRun});
        const T* run = x + DimGroups::offset(plan.groups.marked, at / inner) + within;
        total = Op::join(total, static_cast<double>(reduce_run<Op>(run, count)));
        at += count;
      }
      partials[task] = total;
    }
  });
  launch.pool->ranges(plan.outer, 8192, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t o = first; o < last; ++o) {
      double total = partials[o * plan.chunks];
      for (std::int64_t c = 1; c < plan.chunks; ++c) total = Op::join(total, partials[o * plan.chunks + c]);
      Out& y = launch.out<Out>(0)[o];
      const double before = plan.accumulate ? static_cast<double>(static_cast<float>(y)) : 0.0;
      y = static_cast<Out>(static_cast<float>(before + total * static_cast<double>(plan.scale)));
    }
  });
}

template <class Op, class T, class Out>
void reduce_rows(const Plan& plan, const device::Launch& launch) {
  constexpr std::int64_t kColumns = 2048;  // whose sums stay in the first cache
  const std::int64_t inner = plan.groups.inner;
  const std::int64_t blocks = (inner + kColumns - 1) / kColumns;
  auto* partials = static_cast<float*>(launch.workspace);
  Out* y = launch.out<Out>(0);
  const Vec scale = simd::set(plan.scale);
  const auto finish = [&](const float* sums, Out* out, std::int64_t n) {
    if (plan.accumulate)
      simd::map(
          n, out, [&](Vec s, Vec before) { return hn::MulAdd(s, scale, before); }, sums, static_cast<const Out*>(out));
    else
      simd::map(
          n, out, [&](Vec s) { return s * scale; }, sums);
  };
  // Short reductions share a task, so that tasks are worth starting.
  const std::int64_t work = std::max<std::int64_t>(1, std::min(inner, kColumns) * plan.depth / plan.chunks);
  const std::int64_t per_task = std::max<std::int64_t>(1, 16384 / work);
  launch.pool->ranges(plan.outer * plan.chunks * blocks, per_task, [&](std::int64_t first, std::int64_t last) {
    alignas(64) float sums[kColumns];
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t column = task % blocks * kColumns;
      const std::int64_t chunk = task / blocks % plan.chunks;
      const std::int64_t o = task / blocks / plan.chunks;
      const std::int64_t n = std::min(kColumns, inner - column);
      const T* x = launch.in<T>(0) + DimGroups::offset(plan.groups.plain, o) + column;
      const auto row = [&](std::int64_t r) { return x + DimGroups::offset(plan.groups.marked, r); };
      std::fill(sums, sums + n, Op::kNeutral);
      const float* before = sums;
      std::int64_t r = plan.begin(chunk);
      const std::int64_t end = plan.begin(chunk + 1);
      for (; r + 4 <= end; r += 4)
        simd::map(
            n, sums,
            [](Vec s, Vec a, Vec b, Vec c, Vec d) { return Op::join(s, Op::join(Op::join(a, b), Op::join(c, d))); },
            before, row(r), row(r + 1), row(r + 2), row(r + 3));
      for (; r < end; ++r)
        simd::map(
            n, sums, [](Vec s, Vec a) { return Op::join(s, a); }, before, row(r));
      if (plan.chunks == 1)
        finish(sums, y + o * inner + column, n);
      else
        std::copy(sums, sums + n, partials + (chunk * plan.outer + o) * inner + column);
    }
  });
  if (plan.chunks == 1) return;
  const std::int64_t total = plan.outer * inner;
  launch.pool->ranges(total, kColumns, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partials + begin;
    for (std::int64_t c = 1; c < plan.chunks; ++c)
      simd::map(
          end - begin, sums, [](Vec a, Vec b) { return Op::join(a, b); }, static_cast<const float*>(sums),
          static_cast<const float*>(partials + c * total + begin));
    finish(sums, y + begin, end - begin);
  });
}

template <class Op>
std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_compute(spec.outputs[0].dtype, [&]<class Out>(Out) {
      return make_kernel([plan = Plan(spec)](const device::Launch& launch) {
        if (plan.groups.inner_marked)
          reduce_inner<Op, T, Out>(plan, launch);
        else
          reduce_rows<Op, T, Out>(plan, launch);
      });
    });
  });
}

}  // namespace

std::size_t reduce_workspace(const ir::KernelSpec& spec) { return Plan(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_reduce_cpu(const ir::KernelSpec& spec) {
  return spec.attributes.text("kind") == "max" ? prepare<Max>(spec) : prepare<Sum>(spec);
}

}  // namespace trireme::ops
