#include <algorithm>
#include <bit>
#include <cmath>

#include "trireme/ops/compress/keep_largest.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// Numbers in the order of the elements; 0 for those that are not to be kept.
std::uint32_t rank_of(float x, bool magnitude, bool candidate) {
  if (!candidate) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t kSign = 0x80000000;
  if (magnitude) return (bits & ~kSign) + 1;
  return std::max<std::uint32_t>((bits & kSign) != 0 ? ~bits : bits | kSign, 1);
}

// 1 for the `keep` largest of n; `sorted` has room for n.
void mark_largest(const std::uint32_t* ranks, std::int64_t n, std::int64_t keep, std::uint32_t* sorted, float* kept) {
  std::fill_n(kept, n, 0.0F);
  if (keep <= 0) return;
  std::copy_n(ranks, n, sorted);
  std::nth_element(sorted, sorted + (n - keep), sorted + n);
  const std::uint32_t least = sorted[n - keep];
  for (std::int64_t i = 0; i < n; ++i)
    if (ranks[i] > least) {
      kept[i] = 1;
      --keep;
    }
  for (std::int64_t i = 0; i < n && keep > 0; ++i)
    if (ranks[i] == least && least > 0) {
      kept[i] = 1;
      --keep;
    }
}

}  // namespace

std::size_t keep_largest_workspace(const ir::KernelSpec& spec) {
  return 2 * static_cast<std::size_t>(spec.inputs[0].elements()) * sizeof(std::uint32_t);
}

std::shared_ptr<device::Kernel> prepare_keep_largest_cpu(const ir::KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].elements(), magnitude = spec.attributes.boolean("magnitude"),
                      keep = spec.attributes.integer("keep"),
                      of = spec.attributes.integer("of")](const device::Launch& launch) {
    const float* x = launch.in<float>(0);
    const float* among = launch.in<float>(1);
    float* y = launch.out<float>(0);
    auto* ranks = static_cast<std::uint32_t*>(launch.workspace);
    std::uint32_t* sorted = ranks + n;
    const auto rank = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ranks[i] = rank_of(x[i], magnitude, among == nullptr || among[i] != 0);
    };
    if (of == 0) {
      rank(0, n);
      const double dropped = std::round(static_cast<double>(*launch.in<float>(2)) * static_cast<double>(n));
      mark_largest(ranks, n, n - std::clamp<std::int64_t>(static_cast<std::int64_t>(dropped), 0, n), sorted, y);
      return;
    }
    launch.pool->ranges(n / of, 4096, [&](std::int64_t begin, std::int64_t end) {
      rank(begin * of, end * of);
      for (std::int64_t g = begin; g < end; ++g) mark_largest(ranks + g * of, of, keep, sorted + g * of, y + g * of);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_ramp_cpu(const ir::KernelSpec& spec) {
  return make_kernel([to = spec.attributes.real("to"), cubic = spec.attributes.text("kind") == "cubic",
                      steps = static_cast<double>(spec.attributes.integer("steps"))](const device::Launch& launch) {
    const double t = std::clamp(static_cast<double>(*launch.in<float>(0)) / steps, 0.0, 1.0);
    const double left = 1 - t;
    *launch.out<float>(0) = static_cast<float>(cubic ? to * (1 - left * left * left) : 1 - std::pow(1 - to, t));
  });
}

}  // namespace trireme::ops
