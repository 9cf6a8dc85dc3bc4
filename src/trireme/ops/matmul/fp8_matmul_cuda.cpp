#include "trireme/device/cuda/gemm.h"
#include "trireme/ops/define.h"
#include "trireme/ops/matmul/cuda_kernels.h"
#include "trireme/ops/matmul/fp8_matmul.h"

namespace trireme::ops {
namespace {

using device::cuda::Gemm;
using device::cuda::GemmSpec;

GemmSpec spec_of(const ir::KernelSpec& spec) {
  const MatmulProblem p = matmul_fp8_problem(spec.inputs[0], spec.inputs[1], spec.attributes);
  GemmSpec g;
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.trans_b = true;
  g.lda = g.ldb = p.k;
  g.ldc = p.n;
  g.input = DType::u8;
  g.output = spec.outputs[0].dtype;
  g.accumulate = spec.accumulate;
  g.fp8 = true;
  g.a_e5m2 = spec.attributes.text("a_format") == "e5m2";
  g.b_e5m2 = spec.attributes.text("b_format") == "e5m2";
  g.fast_sums = spec.attributes.boolean("fast");
  return g;
}

}  // namespace

bool supports_matmul_fp8_cuda(const ir::KernelSpec& spec) {
  const GemmSpec g = spec_of(spec);
  return g.m > 0 && g.n > 0 && g.m % 16 == 0 && g.n % 16 == 0 && g.k % 16 == 0;
}

std::size_t matmul_fp8_workspace_cuda(const ir::KernelSpec& spec) { return Gemm::workspace(spec_of(spec)); }

std::shared_ptr<device::Kernel> prepare_matmul_fp8_cuda(const ir::KernelSpec& spec) {
  return make_kernel([gemm = std::make_shared<Gemm>(spec_of(spec), spec.algorithms)](const device::Launch& l) {
    gemm->run_fp8(l.native_stream, l.inputs[0], l.inputs[1], l.in<float>(2), l.in<float>(3), l.outputs[0], l.workspace);
  });
}

}  // namespace trireme::ops
