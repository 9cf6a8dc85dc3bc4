#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "trireme/device/cpu/allowance.h"
#include "trireme/device/cpu/onednn.h"
#include "trireme/ops/conv/problem.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

using device::cpu::Conv;
using device::cpu::ConvSpec;
using Pass = ConvSpec::Pass;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

template <class To, class From>
void convert(std::int64_t n, const From* from, To* to) {
  simd::map(
      n, to, [](simd::Vec v) { return v; }, from);
}

// Hands out places in the workspace.
struct Layout {
  std::size_t bytes = 0;
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += aligned(size);
    return at;
  }
};

// Workspaces are the same on every CPU; where the library wants more than that for a convolution, its kernel keeps
// memory of its own: for the workers, which come last in a layout, or where that is not enough for everything.
enum class Room { planned, needed };
template <class Plan>
std::size_t own_bytes(const Plan& needed, std::size_t planned) {
  if (needed.bytes <= planned) return 0;
  return needed.workers_at <= planned ? needed.bytes - needed.workers_at : needed.bytes;
}

class OwnMemory {
 public:
  template <class Plan>
  OwnMemory(const Plan& needed, std::size_t planned)
      : workers_at_(needed.workers_at), everything_(needed.workers_at > planned), data_(nullptr, std::free) {
    if (const std::size_t bytes = own_bytes(needed, planned); bytes > 0) data_ = device::cpu::allocate_lines(bytes);
  }
  std::byte* base(void* workspace) const {
    return static_cast<std::byte*>(data_ && everything_ ? data_.get() : workspace);
  }
  std::byte* workers(void* workspace) const {
    return data_ && !everything_ ? static_cast<std::byte*>(data_.get()) : base(workspace) + workers_at_;
  }

 private:
  std::size_t workers_at_;
  bool everything_;
  device::cpu::OwnLines data_;
};

// The batch cut into blocks of images, each one call of the library: from the problem's size alone.
struct Blocks {
  ConvProblem problem;
  DType dtype;              // as the library computes
  bool widen;               // images are brought to f32 block by block
  std::int64_t images = 0;  // per block; the last one may have fewer
  std::int64_t blocks = 0;
  std::int64_t x_image = 0, y_image = 0;  // elements

  Blocks(const ConvProblem& p, DType given, bool wide, std::int64_t max_blocks) : problem(p), widen(wide) {
    dtype = widen ? DType::f32 : given;
    images = p.n == 0 ? 0 : (p.n + max_blocks - 1) / max_blocks;
    blocks = p.n == 0 ? 0 : (p.n + images - 1) / images;
    x_image = p.h * p.w * p.c;
    y_image = p.p * p.q * p.k;
  }

  std::int64_t images_of(std::int64_t block) const { return std::min(images, problem.n - block * images); }

  ConvSpec spec(Pass pass, std::int64_t n, bool bias) const {
    const ConvProblem& p = problem;
    ConvSpec s;
    s.pass = pass;
    s.n = n;
    s.h = p.h;
    s.w = p.w;
    s.c = p.c;
    s.k = p.k;
    s.r = p.window.kernel[0];
    s.s = p.window.kernel[1];
    s.p = p.p;
    s.q = p.q;
    s.stride = p.window.stride;
    s.padding = p.window.padding;
    s.padding_after = p.window.padding_after;
    s.dilation = p.window.dilation;
    s.groups = p.groups;
    s.dtype = dtype;
    s.bias = bias;
    s.layout_n = images;
    return s;
  }

  // For inner blocks and the last one together: what the plan gives them, and what they need on this CPU.
  Conv::Bytes bytes(Pass pass, bool bias, Room room) const {
    const auto ask = room == Room::planned ? Conv::bytes : Conv::wanted;
    Conv::Bytes most = ask(spec(pass, images, bias));
    if (images_of(blocks - 1) != images)
      most.scratch = std::max(most.scratch, ask(spec(pass, images_of(blocks - 1), bias)).scratch);
    return most;
  }
};

// The prepared calls of a kernel.
struct Calls {
  std::optional<Conv> inner, last;

  Calls(const Blocks& blocks, Pass pass, bool bias, int threads) {
    if (blocks.blocks == 0) return;
    inner.emplace(blocks.spec(pass, blocks.images, bias), threads);
    const std::int64_t rest = blocks.images_of(blocks.blocks - 1);
    if (rest != blocks.images) last.emplace(blocks.spec(pass, rest, bias), threads);
  }
  const Conv& of(const Blocks& blocks, std::int64_t block) const {
    return blocks.images_of(block) == blocks.images ? *inner : *last;
  }
};

const std::byte* at(const void* base, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}
std::byte* at(void* base, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}

// Forward and input gradient: weights packed once, images block by block.
struct ImagePlan {
  static constexpr std::int64_t kBlocks = 32;

  Pass pass;
  Blocks blocks;
  bool bias, convert_bias;
  std::size_t weights_at = 0, bias_at = 0, packed_at = 0, workers_at = 0;
  std::size_t x_bytes = 0, y_bytes = 0, worker_bytes = 0;  // a worker has f32 copies of x and y, then scratch
  std::size_t bytes = 0;

  ImagePlan(Pass which, const ConvProblem& problem, const ir::KernelSpec& spec, Room room)
      : pass(which), blocks(problem, spec.inputs[0].dtype, spec.inputs[0].dtype == DType::f16, kBlocks) {
    bias = which == Pass::forward && spec.inputs[2].present;
    convert_bias = bias && spec.inputs[2].dtype != DType::f32;
    if (blocks.blocks == 0) return;
    const Conv::Bytes library = blocks.bytes(pass, bias, room);
    Layout layout;
    if (blocks.widen) {
      weights_at = layout.take(static_cast<std::size_t>(problem.weights().elements()) * sizeof(float));
      x_bytes = aligned(static_cast<std::size_t>(blocks.images * blocks.x_image) * sizeof(float));
      y_bytes = aligned(static_cast<std::size_t>(blocks.images * blocks.y_image) * sizeof(float));
    }
    if (convert_bias) bias_at = layout.take(static_cast<std::size_t>(problem.k) * sizeof(float));
    packed_at = layout.take(library.packed);
    // Weights are packed before the workers begin.
    worker_bytes = x_bytes + y_bytes + library.scratch;
    workers_at = layout.take(std::max(library.pack_scratch, worker_bytes * static_cast<std::size_t>(spec.threads)));
    bytes = layout.bytes;
  }
};

class ImageKernel final : public device::Kernel {
 public:
  ImageKernel(const ImagePlan& plan, std::size_t planned, const ir::KernelSpec& spec)
      : plan_(plan),
        own_(plan, planned),
        calls_(plan.blocks, plan.pass, plan.bias, spec.threads),
        threads_(spec.threads),
        bias_type_(plan.bias ? spec.inputs[2].dtype : DType::f32) {}

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const Blocks& b = plan_.blocks;
    if (b.blocks == 0) return;
    std::byte* const workspace = own_.base(launch.workspace);
    std::byte* const workers = own_.workers(launch.workspace);
    const void* weights = launch.inputs[1];
    if (b.widen) {
      auto* const wide = reinterpret_cast<float*>(workspace + plan_.weights_at);
      convert(b.problem.weights().elements(), launch.in<Float16>(1), wide);
      weights = wide;
    }
    const float* bias = plan_.bias ? launch.in<float>(2) : nullptr;
    if (plan_.convert_bias) {
      auto* const wide = reinterpret_cast<float*>(workspace + plan_.bias_at);
      dispatch_compute(bias_type_, [&]<class T>(T) { convert(b.problem.k, launch.in<T>(2), wide); });
      bias = wide;
    }
    std::byte* const packed = workspace + plan_.packed_at;
    calls_.inner->pack(weights, packed, workers);

    const bool forward = plan_.pass == Pass::forward;
    launch.pool->run_with_worker(b.blocks, [&](std::int64_t block, int worker) {
      std::byte* const own = workers + plan_.worker_bytes * static_cast<std::size_t>(worker);
      std::byte* const scratch = own + plan_.x_bytes + plan_.y_bytes;
      const std::int64_t first = block * b.images;
      const std::int64_t images = b.images_of(block);
      const Conv& call = calls_.of(b, block);
      const std::int64_t from = forward ? b.x_image : b.y_image;
      const std::int64_t to = forward ? b.y_image : b.x_image;
      if (!b.widen) {
        const void* source = at(launch.inputs[0], first * from, b.dtype);
        void* result = at(launch.outputs[0], first * to, b.dtype);
        call.run(worker, forward ? source : result, packed, bias, forward ? result : source, scratch);
        return;
      }
      auto* const x = reinterpret_cast<float*>(own);
      auto* const y = reinterpret_cast<float*>(own + plan_.x_bytes);
      convert(images * from, launch.in<Float16>(0) + first * from, forward ? x : y);
      call.run(worker, x, packed, bias, y, scratch);
      convert(images * to, forward ? y : x, launch.out<Float16>(0) + first * to);
    });
  }

 private:
  ImagePlan plan_;
  OwnMemory own_;
  Calls calls_;
  int threads_;
  DType bias_type_;
};

// Weight gradient: each block of images gives a part of the sum; the parts are added in their order.
struct WeightPlan {
  static constexpr std::int64_t kMaxBlocks = 16;
  static constexpr std::size_t kPartBytes = std::size_t{32} << 20;  // of all parts together, where two fit

  DType given;
  Blocks blocks;
  DType out;
  bool accumulate;
  std::size_t part_bytes = 0;
  std::size_t parts_at = 0, plain_at = 0, workers_at = 0;
  std::size_t x_bytes = 0, y_bytes = 0, worker_bytes = 0;
  std::size_t bytes = 0;

  WeightPlan(const ConvProblem& problem, const ir::KernelSpec& spec, Room room)
      : given(spec.inputs[0].dtype),
        blocks(problem, given, is_widened(problem, given), max_blocks(problem)),
        out(spec.outputs[0].dtype),
        accumulate(spec.accumulate) {
    if (blocks.blocks == 0) return;
    const Conv::Bytes library = blocks.bytes(Pass::weight_gradient, false, room);
    part_bytes = library.packed;
    Layout layout;
    parts_at = layout.take(part_bytes * static_cast<std::size_t>(blocks.blocks));
    if (out != DType::f32)
      plain_at = layout.take(static_cast<std::size_t>(problem.weights().elements()) * sizeof(float));
    if (blocks.widen) {
      x_bytes = aligned(static_cast<std::size_t>(blocks.images * blocks.x_image) * sizeof(float));
      y_bytes = aligned(static_cast<std::size_t>(blocks.images * blocks.y_image) * sizeof(float));
    }
    // The sum is unpacked when the workers are done.
    worker_bytes = x_bytes + y_bytes + library.scratch;
    workers_at = layout.take(std::max(library.pack_scratch, worker_bytes * static_cast<std::size_t>(spec.threads)));
    bytes = layout.bytes;
  }

  // oneDNN 2.6 makes wrong bf16 sums where an image is narrower than the stride, as slices of images may be.
  static bool is_widened(const ConvProblem& problem, DType given) {
    return given == DType::f16 || (given == DType::bf16 && problem.w < problem.window.stride[1]);
  }

  static std::int64_t max_blocks(const ConvProblem& problem) {
    const std::size_t part = static_cast<std::size_t>(problem.weights().elements()) * sizeof(float);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kPartBytes / part), 2, kMaxBlocks);
  }
};

class WeightKernel final : public device::Kernel {
 public:
  WeightKernel(const WeightPlan& plan, std::size_t planned, const ir::KernelSpec& spec)
      : plan_(plan),
        own_(plan, planned),
        calls_(plan.blocks, Pass::weight_gradient, false, spec.threads),
        threads_(spec.threads) {}

  void launch(const device::Launch& launch) override {
    TRI_CHECK(launch.pool->threads() <= threads_, "prepared for {} threads", threads_);
    const Blocks& b = plan_.blocks;
    std::byte* const workspace = own_.base(launch.workspace);
    std::byte* const workers = own_.workers(launch.workspace);
    const std::size_t part_bytes = plan_.part_bytes;
    launch.pool->run_with_worker(b.blocks, [&](std::int64_t block, int worker) {
      std::byte* const own = workers + plan_.worker_bytes * static_cast<std::size_t>(worker);
      std::byte* const part = workspace + plan_.parts_at + part_bytes * static_cast<std::size_t>(block);
      const std::int64_t first = block * b.images;
      const void* x = launch.inputs[0];
      const void* y = launch.inputs[1];
      if (b.widen) {
        const std::int64_t images = b.images_of(block);
        auto* const wide_x = reinterpret_cast<float*>(own);
        auto* const wide_y = reinterpret_cast<float*>(own + plan_.x_bytes);
        dispatch_compute(plan_.given, [&]<class T>(T) {
          convert(images * b.x_image, launch.in<T>(0) + first * b.x_image, wide_x);
          convert(images * b.y_image, launch.in<T>(1) + first * b.y_image, wide_y);
        });
        x = wide_x;
        y = wide_y;
      } else {
        x = at(x, first * b.x_image, b.dtype);
        y = at(y, first * b.y_image, b.dtype);
      }
      calls_.of(b, block).run(worker, x, part, nullptr, y, own + plan_.x_bytes + plan_.y_bytes);
    });

    auto* const sum = reinterpret_cast<float*>(workspace + plan_.parts_at);
    const auto stride = static_cast<std::int64_t>(part_bytes / sizeof(float));
    launch.pool->ranges(stride, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = 1; block < b.blocks; ++block)
        simd::map(
            end - begin, sum + begin, [](simd::Vec a, simd::Vec v) { return a + v; }, sum + begin,
            sum + block * stride + begin);
    });

    if (plan_.out == DType::f32) {
      calls_.inner->unpack(sum, launch.out<float>(0), plan_.accumulate, workers);
      return;
    }
    auto* const plain = reinterpret_cast<float*>(workspace + plan_.plain_at);
    calls_.inner->unpack(sum, plain, false, workers);
    dispatch_compute(plan_.out, [&]<class T>(T) {
      T* const dw = launch.out<T>(0);
      launch.pool->ranges(b.problem.weights().elements(), simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        if (plan_.accumulate)
          simd::map(
              end - begin, dw + begin, [](simd::Vec v, simd::Vec before) { return v + before; }, plain + begin,
              dw + begin);
        else
          convert(end - begin, plain + begin, dw + begin);
      });
    });
  }

 private:
  WeightPlan plan_;
  OwnMemory own_;
  Calls calls_;
  int threads_;
};

ImagePlan forward_plan(const ir::KernelSpec& spec, Room room) {
  return {Pass::forward, conv_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec, room};
}
ImagePlan input_gradient_plan(const ir::KernelSpec& spec, Room room) {
  return {Pass::input_gradient, conv_input_gradient_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec,
          room};
}
WeightPlan weight_gradient_plan(const ir::KernelSpec& spec, Room room) {
  return {conv_weight_gradient_problem(spec.inputs[0], spec.inputs[1], spec.attributes), spec, room};
}

}  // namespace

std::size_t conv2d_cpu_workspace(const ir::KernelSpec& spec) { return forward_plan(spec, Room::planned).bytes; }
std::size_t conv2d_cpu_own(const ir::KernelSpec& spec) {
  return own_bytes(forward_plan(spec, Room::needed), conv2d_cpu_workspace(spec));
}
std::shared_ptr<device::Kernel> prepare_conv2d_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<ImageKernel>(forward_plan(spec, Room::needed), conv2d_cpu_workspace(spec), spec);
}

std::size_t conv2d_grad_input_cpu_workspace(const ir::KernelSpec& spec) {
  return input_gradient_plan(spec, Room::planned).bytes;
}
std::size_t conv2d_grad_input_cpu_own(const ir::KernelSpec& spec) {
  return own_bytes(input_gradient_plan(spec, Room::needed), conv2d_grad_input_cpu_workspace(spec));
}
std::shared_ptr<device::Kernel> prepare_conv2d_grad_input_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<ImageKernel>(input_gradient_plan(spec, Room::needed), conv2d_grad_input_cpu_workspace(spec),
                                       spec);
}

std::size_t conv2d_grad_weight_cpu_workspace(const ir::KernelSpec& spec) {
  return weight_gradient_plan(spec, Room::planned).bytes;
}
std::size_t conv2d_grad_weight_cpu_own(const ir::KernelSpec& spec) {
  return own_bytes(weight_gradient_plan(spec, Room::needed), conv2d_grad_weight_cpu_workspace(spec));
}
std::shared_ptr<device::Kernel> prepare_conv2d_grad_weight_cpu(const ir::KernelSpec& spec) {
  return std::make_shared<WeightKernel>(weight_gradient_plan(spec, Room::needed),
                                        conv2d_grad_weight_cpu_workspace(spec), spec);
}

}  // namespace trireme::ops
