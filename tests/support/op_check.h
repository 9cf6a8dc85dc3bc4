#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"

namespace trireme::testing {

// A tensor on the host in double precision, whatever its dtype in the program.
struct Tensor {
  TensorType type;
  std::vector<double> data;

  double& operator[](std::size_t i) { return data[i]; }
  double operator[](std::size_t i) const { return data[i]; }
  static Tensor zeros(const TensorType& type) {
    return {type, std::vector<double>(static_cast<std::size_t>(type.elements()))};
  }
};

// One op on given types, checked in every way that makes sense for it:
//   - each output against the double-precision reference (relative norm error at most `tolerance`);
//   - gradients of a random weighted sum of the outputs named in `differentiate_outputs` with respect to the inputs in
//     `differentiate`, against central differences of the reference (relative norm error at most `gradient_tolerance`);
//   - the same bits with one thread and with three;
//   - every free factor of the op's sharding rule: cut in two, pieces concatenated (or summed) equal the whole;
//   - every free factor that may be padded (ir::Traits::pads): with zeros behind its elements the results are the same
//     there, and zeros behind them;
//   - kernels stay inside their buffers (guard bytes around each), and allocate nothing (support/allocations.h).
struct OpCase {
  std::string op;
  std::vector<TensorType> inputs;  // TensorType::none() for an absent optional operand
  ir::Attributes attributes;
  // All outputs, or the first few, from all inputs. Absent inputs are empty tensors with type.present == false.
  // Inputs arrive as the kernel sees them: already rounded to their dtype.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> reference;

  // Values for input i; default: uniform in [-1, 1) for floats; integers must be given here.
  std::function<double(std::size_t input, std::size_t element)> fill;
  std::vector<std::size_t> differentiate;  // inputs
  std::vector<std::size_t> differentiate_outputs = {0};
  double tolerance = 2e-6;           // f32; use about 1e-2 for bf16 outputs
  double gradient_tolerance = 1e-5;  // f32
  bool check_factors = true;
  // Outputs whose padding need not be zeros: the op's own gradient alone reads them, and multiplies by zeros there.
  std::vector<std::size_t> saved_outputs = {};
};

// With TRIREME_TEST_DEVICE=cuda all of it on a GPU, where threads mean nothing and the runs are repetitions.
void check_op(const OpCase& c);

// ‖a − b‖ / max(‖b‖, tiny)
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

// Rounds to what `dtype` can hold.
double round_to(double value, DType dtype);

}  // namespace trireme::testing
