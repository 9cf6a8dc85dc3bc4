#include <gtest/gtest.h>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-6 : 1e-2; }

// op(a, b) on each pair of elements, b repeated over a's leading dimensions.
OpCase binary_case(const std::string& op, const TensorType& a, const TensorType& b, double (*f)(double, double)) {
  OpCase c;
  c.op = op;
  c.inputs = {a, b};
  c.tolerance = tolerance_of(a.dtype);
  c.reference = [f](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (std::size_t i = 0; i < y.data.size(); ++i) y[i] = f(in[0][i], in[1][i % in[1].data.size()]);
    return std::vector<Tensor>{y};
  };
  if (a.dtype == DType::f32 && b.dtype == DType::f32) c.differentiate = {0, 1};
  return c;
}

double sum(double a, double b) { return a + b; }
double product(double a, double b) { return a * b; }

TEST(Add, SameShape) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{3, 7}, Shape{5, 33, 65}})
      check_op(binary_case("add", {dtype, shape}, {dtype, shape}, sum));
}

TEST(Add, BroadcastsSuffixAndScalar) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(binary_case("add", {dtype, {9, 3, 7}}, {dtype, {3, 7}}, sum));
    check_op(binary_case("add", {dtype, {9, 3, 65}}, {dtype, {65}}, sum));
    check_op(binary_case("add", {dtype, {9, 3}}, {dtype, {}}, sum));
    check_op(binary_case("add", {dtype, {3, 9001}}, {DType::f32, {9001}}, sum));
  }
}

TEST(Mul, BroadcastsToo) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    check_op(binary_case("mul", {dtype, {5, 33}}, {dtype, {5, 33}}, product));
    check_op(binary_case("mul", {dtype, {5, 33}}, {dtype, {33}}, product));
    check_op(binary_case("mul", {dtype, {5, 33}}, {DType::f32, {}}, product));
  }
}

TEST(Accumulate, AddsAnyFloatToF32) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    check_op(binary_case("accumulate", {DType::f32, {3, 5, 67}}, {dtype, {3, 5, 67}}, sum));
}

TEST(Accumulate, KeepsTheTypeOfTheSum) {
  for (const DType acc : {DType::bf16, DType::f16})
    for (const DType dtype : {DType::f32, acc})
      check_op(binary_case("accumulate", {acc, {3, 5, 67}}, {dtype, {3, 5, 67}}, sum));
}

TEST(AddN, AddsInOrder) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::size_t count : {1, 2, 5}) {
      OpCase c;
      c.op = "add_n";
      c.inputs = std::vector<TensorType>(count, {dtype, {3, 43}});
      c.tolerance = tolerance_of(dtype);
      c.reference = [](const std::vector<Tensor>& in) {
        Tensor y = in[0];
        for (std::size_t k = 1; k < in.size(); ++k)
          for (std::size_t i = 0; i < y.data.size(); ++i) y[i] += in[k][i];
        return std::vector<Tensor>{y};
      };
      if (dtype == DType::f32) c.differentiate = {0};
      check_op(c);
    }
}

TEST(Scale, Multiplies) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    OpCase c;
    c.op = "scale";
    c.inputs = {{dtype, {7, 19}}};
    c.attributes = {{"factor", -1.5}};
    c.tolerance = tolerance_of(dtype);
    c.reference = [](const std::vector<Tensor>& in) {
      Tensor y = in[0];
      for (double& v : y.data) v *= -1.5;
      return std::vector<Tensor>{y};
    };
    if (dtype == DType::f32) c.differentiate = {0};
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme::ops
