#pragma once
#include <memory>

#include "trireme/device/kernel.h"
#include "trireme/ir/op_def.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {

// Products with a handful of rows (text generation: one per sequence) read b once and do little with it. Packing b
// would cost several times that, so this kernel goes straight through its rows: a as it is, b transposed.
bool takes_few_rows(const MatmulProblem& problem);
// Columns are shared out in tasks of a fixed size: which share of all of them the busiest of so many threads has.
double busiest_share(std::int64_t columns, int threads);
std::size_t few_rows_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_few_rows(const ir::KernelSpec& spec);

}  // namespace trireme::ops
