#include "trireme/device/cuda/gemm.h"
#include "trireme/ops/cuda/activation.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/matmul/cuda_kernels.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {
namespace {

using namespace cuda;
using device::cuda::Gemm;
using device::cuda::GemmSpec;

// What the library does not do in its epilogue is done by a kernel of our own behind it.
struct Plan {
  MatmulProblem problem;
  GemmSpec gemm;
  bool own_bias = false;      // added by our kernel
  bool own_epilogue = false;  // our kernel follows
  bool staged = false;        // the library's result goes to the workspace first
  std::size_t stage_bytes = 0;

  explicit Plan(const ir::KernelSpec& spec) : problem(matmul_problem(spec.inputs[0], spec.inputs[1], spec.attributes)) {
    const DType y = spec.outputs[0].dtype;
    const std::string& activation = spec.attributes.text("activation");
    const std::string& derivative = spec.attributes.text("activation_grad");
    const bool keep = spec.attributes.boolean("save_pre");
    const bool add = spec.attributes.boolean("add");
    gemm = {.m = problem.m,
            .n = problem.n,
            .k = problem.k,
            .trans_a = problem.trans_a,
            .trans_b = problem.trans_b,
            .lda = problem.lda(),
            .ldb = problem.ldb(),
            .ldc = problem.n,
            .input = spec.inputs[0].dtype,
            .output = y,
            .tf32 = spec.attributes.boolean("tf32"),
            .accumulate = spec.accumulate};
    const bool bias = spec.inputs[2].present;
    const bool fused = Gemm::has_gelu(gemm);
    gemm.bias = bias && spec.inputs[2].dtype == y;
    own_bias = bias && !gemm.bias;
    if (derivative == "gelu_tanh" && fused && spec.inputs[3].dtype == y) {
      gemm.gelu_gradient = true;
    } else if (add && !spec.accumulate) {
      gemm.add = true;
    } else if (derivative != "none" || add) {
      own_epilogue = staged = true;  // aux may be in place of y
    } else if (activation == "gelu_tanh" && fused && !own_bias) {
      gemm.gelu = true;
      gemm.keep_argument = keep;
    } else if (activation != "none" || own_bias || keep) {
      own_epilogue = true;
      staged = spec.accumulate;
    }
    if (staged) {
      gemm.accumulate = false;
      stage_bytes = (static_cast<std::size_t>(problem.m * problem.n) * size_of(y) + 63) / 64 * 64;
    }
  }
  std::size_t workspace() const { return stage_bytes + Gemm::workspace(gemm); }
};

template <class A, class Y, class B>
__global__ void activate_kernel(const Y* sums, const B* bias, Y* pre, Y* y, bool accumulate, std::int64_t n,
                                std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float v = wide(sums[i]);
  if (bias != nullptr) v = wide(narrow<Y>(v + wide(bias[i % n])));
  if (pre != nullptr) pre[i] = narrow<Y>(v);
  v = A::value(v);
  y[i] = narrow<Y>(accumulate ? wide(y[i]) + v : v);
}

template <class A, class Y, class Aux>
__global__ void differentiate_kernel(const Y* sums, const Aux* aux, Y* y, bool accumulate, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float v = wide(sums[i]) * A::derivative(wide(aux[i]));
  y[i] = narrow<Y>(accumulate ? wide(y[i]) + v : v);
}

template <class Y>
__global__ void add_kernel(const Y* sums, const Y* aux, Y* y, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = narrow<Y>(wide(y[i]) + (wide(sums[i]) + wide(aux[i])));
}

using Epilogue = void (*)(const device::Launch& launch, const void* sums, bool own_bias, bool accumulate,
                          std::int64_t n, std::int64_t count);

template <class A, class Y, class B>
void activate(const device::Launch& launch, const void* sums, bool own_bias, bool accumulate, std::int64_t n,
              std::int64_t count) {
  activate_kernel<A, Y, B><<<blocks(pieces(count, 256)), 256, 0, stream_of(launch)>>>(
      static_cast<const Y*>(sums), own_bias ? launch.in<B>(2) : nullptr,
      launch.outputs.size() > 1 ? launch.out<Y>(1) : nullptr, launch.out<Y>(0), accumulate, n, count);
}

template <class A, class Y, class Aux>
void differentiate(const device::Launch& launch, const void* sums, bool, bool accumulate, std::int64_t,
                   std::int64_t count) {
  differentiate_kernel<A, Y, Aux><<<blocks(pieces(count, 256)), 256, 0, stream_of(launch)>>>(
      static_cast<const Y*>(sums), launch.in<Aux>(3), launch.out<Y>(0), accumulate, count);
}

template <class Y>
void add_both(const device::Launch& launch, const void* sums, bool, bool, std::int64_t, std::int64_t count) {
  add_kernel<Y><<<blocks(pieces(count, 256)), 256, 0, stream_of(launch)>>>(static_cast<const Y*>(sums), launch.in<Y>(3),
                                                                           launch.out<Y>(0), count);
}

Epilogue epilogue_of(const ir::KernelSpec& spec) {
  const std::string& derivative = spec.attributes.text("activation_grad");
  return dispatch_native(spec.outputs[0].dtype, [&]<class Y>(Y) {
    if (spec.attributes.boolean("add")) return static_cast<Epilogue>(add_both<Y>);
    if (derivative == "none")
      return dispatch_native(spec.inputs[2].dtype, [&]<class B>(B) {
        return with_activation(spec.attributes.text("activation"),
                               [&]<class A>(A) -> Epilogue { return activate<A, Y, B>; });
      });
    return dispatch_native(spec.inputs[3].dtype, [&]<class Aux>(Aux) {
      return with_activation(derivative, [&]<class A>(A) -> Epilogue { return differentiate<A, Y, Aux>; });
    });
  });
}

}  // namespace

std::size_t matmul_workspace_cuda(const ir::KernelSpec& spec) { return Plan(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_matmul_cuda(const ir::KernelSpec& spec) {
  const Plan plan(spec);
  const std::int64_t count = plan.problem.m * plan.problem.n;
  if (count == 0) return make_kernel([](const device::Launch&) {});
  const Epilogue epilogue = plan.own_epilogue ? epilogue_of(spec) : nullptr;
  return make_kernel([plan, count, epilogue, accumulate = spec.accumulate,
                      gemm = std::make_shared<Gemm>(plan.gemm, spec.algorithms)](const device::Launch& launch) {
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    const bool keeps = plan.gemm.keep_argument;
    void* const target = plan.staged ? workspace : launch.outputs[0];
    void* const aux = keeps ? launch.outputs[1] : const_cast<void*>(launch.inputs[3]);
    gemm->run(launch.native_stream, launch.inputs[0], launch.inputs[1], target, workspace + plan.stage_bytes,
              launch.inputs[2], aux);
    if (epilogue == nullptr) return;
    epilogue(launch, target, plan.own_bias, accumulate, plan.problem.n, count);
    device::cuda::launched("matmul's epilogue");
  });
}

}  // namespace trireme::ops
