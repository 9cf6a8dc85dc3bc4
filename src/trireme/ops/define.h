#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

// What most op definitions say in the same words.
namespace trireme::ops {

// Checks for `infer`; each throws with what was expected and what came.
void expect_compute(const TensorType& type, const char* operand);  // f32, bf16 or f16
void expect_dtype(const TensorType& type, DType dtype, const char* operand);
void expect_type(const TensorType& type, const TensorType& expected, const char* operand);
void expect_shape(const TensorType& type, const Shape& expected, const char* operand);

// Makes `infer` check number and presence of the operands first. The last line of a definition: return checked(def).
ir::OpDef checked(ir::OpDef def);

// Reads and writes each operand once and does `flops` floating-point operations per element of the first output.
// For an op whose attribute "shape" is that of its output: OpDef::localize.
ir::Attributes local_shape(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                           const ir::Attributes& attributes);

ir::Cost one_pass(std::span<const TensorType> inputs, std::span<const TensorType> outputs, double flops);

// Each operand's dimensions are the last ones of the longest operand's: equal shapes, and operands broadcast over
// leading dimensions. Dimensions of extent 1 against a longer one are not broadcast.
ir::Factors aligned_factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs);

// The value of a dtype attribute; throws on an unknown name.
DType dtype_of(const std::string& name);
// out = "same" | "f32".
DType out_dtype(const std::string& out, DType same);

using device::make_kernel;

// A CPU kernel that runs whatever `infer` accepts.
using Prepare = std::shared_ptr<device::Kernel> (*)(const ir::KernelSpec&);
using Workspace = std::size_t (*)(const ir::KernelSpec&);
void on_cpu(ir::OpDef& def, Prepare prepare, Workspace workspace = nullptr, Workspace own = nullptr);

}  // namespace trireme::ops
