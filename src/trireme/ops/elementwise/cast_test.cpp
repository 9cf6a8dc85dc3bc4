#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::round_to;
using testing::Tensor;

constexpr DType kAll[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                          DType::u8,  DType::u16, DType::i32, DType::i64};

TEST(Cast, AnyToAny) {
  for (const DType from : kAll)
    for (const DType to : kAll) {
      OpCase c;
      c.op = "cast";
      c.inputs = {{from, {3, 43}}};
      c.attributes = {{"to", std::string(name_of(to))}};
      c.fill = [](std::size_t, std::size_t i) { return 0.37 * static_cast<double>(i * 29 % 131); };
      c.tolerance = 0;
      c.reference = [to](const std::vector<Tensor>& in) {
        Tensor y = in[0];
        y.type.dtype = to;
        for (double& v : y.data) v = round_to(v, to);
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

TEST(Cast, Gradient) {
  OpCase c;
  c.op = "cast";
  c.inputs = {{DType::f32, {3, 7}}};
  c.attributes = {{"to", std::string("f32")}};
  c.differentiate = {0};
  c.reference = [](const std::vector<Tensor>& in) { return in; };
  check_op(c);
}

TEST(Fill, AnyDtype) {
  for (const DType dtype : kAll)
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}, {3, 7}, {9001}}) {
      OpCase c;
      c.op = "fill";
      c.attributes = {{"value", 3.0}, {"shape", shape}, {"dtype", std::string(name_of(dtype))}};
      c.tolerance = 0;
      c.reference = [&](const std::vector<Tensor>&) {
        Tensor y = Tensor::zeros({dtype, Shape(shape)});
        for (double& v : y.data) v = 3;
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

TEST(Select, ChoosesByFlag) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
    for (const double flag : {0.0, 1.0})
      for (const Shape& shape : {Shape{}, Shape{3, 7}, Shape{40001}}) {
        OpCase c;
        c.op = "select";
        c.inputs = {{DType::f32, {}}, {dtype, shape}, {dtype, shape}};
        c.fill = [flag](std::size_t input, std::size_t i) {
          return input == 0 ? flag : static_cast<double>(input * 50 + i % 50);
        };
        c.tolerance = 0;
        c.reference = [flag](const std::vector<Tensor>& in) { return std::vector<Tensor>{flag != 0 ? in[1] : in[2]}; };
        if (dtype == DType::f32 && shape.elements() < 1000) c.differentiate = {1, 2};
        check_op(c);
      }
}

}  // namespace
}  // namespace trireme::ops
