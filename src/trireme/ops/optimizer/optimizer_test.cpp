#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "support/guarded.h"
#include "support/op_check.h"
#include "trireme/device/kernel.h"
#include "trireme/ops/all.h"
#include "trireme/ops/optimizer/clip.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

const TensorType kScalar = {DType::f32, {}};

double wave(std::size_t input, std::size_t i) {
  return std::sin(1.1 * static_cast<double>(i) + 0.7 * static_cast<double>(input));
}

void add_low(std::vector<Tensor>& outputs, const std::string& low) {
  if (low == "none") return;
  Tensor copy = outputs[0];
  copy.type.dtype = *parse_dtype(low);
  outputs.push_back(copy);
}

TEST(AdamW, FollowsItsFormula) {
  for (const DType grad : {DType::f32, DType::bf16, DType::f16})
    for (const std::string low : {"none", "bf16", "f16"})
      for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{17, 33}, Shape{20011}})
        for (const bool finite : {true, false})
          for (const bool keep : {false, true}) {
            const TensorType param = {DType::f32, shape};
            OpCase c;
            c.op = "adamw";
            c.inputs = {param,   {grad, shape}, param,
                        param,   kScalar,       kScalar,
                        kScalar, kScalar,       keep ? param : TensorType::none()};
            c.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"low", low}};
            c.fill = [finite](std::size_t input, std::size_t i) {
              switch (input) {
                case 3: return wave(3, i) * wave(3, i) + 1e-3;
                case 4: return 0.01;
                case 5: return 7.0;
                case 6: return 0.5;
                case 7: return finite ? 1.0 : 0.0;
                case 8: return i % 3 == 1 ? 0.0 : 1.0;
                default: return wave(input, i);
              }
            };
            if (low != "none") c.tolerance = low == "bf16" ? 5e-3 : 1e-3;
            c.reference = [finite, low, keep](const std::vector<Tensor>& in) {
              std::vector<Tensor> out = {in[0], in[2], in[3]};
              const double lr = in[4][0];
              const double step = in[5][0];
              for (std::size_t i = 0; finite && i < in[0].data.size(); ++i) {
                const double g = in[1][i] * in[6][0];
                out[1][i] = 0.9 * in[2][i] + 0.1 * g;
                out[2][i] = 0.95 * in[3][i] + 0.05 * g * g;
                const double m = out[1][i] / (1 - std::pow(0.9, step));
                const double v = out[2][i] / (1 - std::pow(0.95, step));
                out[0][i] = in[0][i] * (1 - lr * 0.1) - lr * m / (std::sqrt(v) + 1e-8);
              }
              for (Tensor& x : out)
                for (std::size_t i = 0; keep && i < x.data.size(); ++i) x[i] *= in[8][i];
              add_low(out, low);
              return out;
            };
            check_op(c);
          }
}

TEST(Sgd, FollowsItsFormula) {
  for (const DType grad : {DType::f32, DType::bf16})
    for (const std::string low : {"none", "bf16"})
      for (const Shape& shape : {Shape{1}, Shape{17, 33}, Shape{20011}})
        for (const bool finite : {true, false})
          for (const bool keep : {false, true}) {
            const TensorType param = {DType::f32, shape};
            OpCase c;
            c.op = "sgd";
            c.inputs = {param, {grad, shape}, param, kScalar, kScalar, kScalar, keep ? param : TensorType::none()};
            c.attributes = {{"momentum", 0.8}, {"weight_decay", 0.1}, {"low", low}};
            c.fill = [finite](std::size_t input, std::size_t i) {
              switch (input) {
                case 3: return 0.01;
                case 4: return 0.5;
                case 5: return finite ? 1.0 : 0.0;
                case 6: return i % 3 == 1 ? 0.0 : 1.0;
                default: return wave(input, i);
              }
            };
            if (low != "none") c.tolerance = 5e-3;
            c.reference = [finite, low, keep](const std::vector<Tensor>& in) {
              std::vector<Tensor> out = {in[0], in[2]};
              const double lr = in[3][0];
              for (std::size_t i = 0; finite && i < in[0].data.size(); ++i) {
                out[1][i] = 0.8 * in[2][i] + in[1][i] * in[4][0];
                out[0][i] = in[0][i] * (1 - lr * 0.1) - lr * out[1][i];
              }
              for (Tensor& x : out)
                for (std::size_t i = 0; keep && i < x.data.size(); ++i) x[i] *= in[6][i];
              add_low(out, low);
              return out;
            };
            check_op(c);
          }
}

TEST(Descend, FollowsItsFormula) {
  for (const DType direction : {DType::f32, DType::bf16})
    for (const std::string low : {"none", "bf16"})
      for (const Shape& shape : {Shape{1}, Shape{17, 33}, Shape{20011}})
        for (const bool scaled : {true, false})
          for (const bool finite : {true, false}) {
            const bool keep = scaled != finite || shape.rank() == 2;
            const TensorType param = {DType::f32, shape};
            OpCase c;
            c.op = "descend";
            c.inputs = {param,
                        {direction, shape},
                        scaled ? param : TensorType::none(),
                        kScalar,
                        scaled ? kScalar : TensorType::none(),
                        kScalar,
                        keep ? param : TensorType::none()};
            c.attributes = {
                {"weight_decay", 0.1}, {"low", low}, {"beta1", 0.9}, {"variance_scale", 1.5}, {"eps", 0.01}};
            c.fill = [finite](std::size_t input, std::size_t i) {
              switch (input) {
                case 6: return i % 3 == 0 ? 0.0 : 1.0;
                case 2: return std::abs(wave(input, i));
                case 3: return 0.01;
                case 4: return 3.0;
                case 5: return finite ? 1.0 : 0.0;
                default: return wave(input, i);
              }
            };
            if (low != "none") c.tolerance = 5e-3;
            c.reference = [=](const std::vector<Tensor>& in) {
              std::vector<Tensor> out = {in[0]};
              const double lr = in[3][0];
              for (std::size_t i = 0; finite && i < in[0].data.size(); ++i) {
                const double along =
                    scaled ? in[1][i] / (1 - std::pow(0.9, 3)) / (std::sqrt(1.5 * in[2][i]) + 0.01) : in[1][i];
                out[0][i] = in[0][i] * (1 - lr * 0.1) - lr * along;
              }
              for (std::size_t i = 0; keep && i < in[0].data.size(); ++i) out[0][i] *= in[6][i];
              add_low(out, low);
              return out;
            };
            check_op(c);
          }
}

TEST(SumSquares, AnySizeAndLargeValues) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{65, 33}, Shape{100003}}) {
      OpCase c;
      c.op = "sum_squares";
      c.inputs = {{dtype, shape}};
      c.tolerance = 1e-7;
      c.reference = [](const std::vector<Tensor>& in) {
        Tensor y = Tensor::zeros(kScalar);
        for (const double v : in[0].data) y[0] += v * v;
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

// Of gradients 1024 times too large, as if they were not.
TEST(ClipScale, InAnotherUnit) {
  for (const double max_norm : {0.0, 1.0, 10.0}) {
    OpCase c;
    c.op = "clip_scale";
    c.inputs = {kScalar, kScalar, kScalar};
    c.attributes = {{"max_norm", max_norm}};
    c.fill = [](std::size_t input, std::size_t) { return input == 0 ? 4.0 * 1024 * 1024 : input == 1 ? 1 : 1024; };
    c.reference = [&](const std::vector<Tensor>&) {
      std::vector<Tensor> out(3, Tensor::zeros(kScalar));
      out[0][0] = 2;
      out[1][0] = (max_norm == 1 ? 1 / (2 + 1e-6) : 1.0) / 1024;
      out[2][0] = 1;
      return out;
    };
    check_op(c);
  }
}

TEST(AdaptiveScale, DoublesAfterTheWindowAndHalvesOnFailure) {
  struct Expected {
    std::array<double, 4> in;  // scale, good, bad, finite
    std::array<double, 3> out;
  };
  for (const Expected& e :
       {Expected{{8, 0, 5, 1}, {8, 1, 5}}, Expected{{8, 1, 5, 1}, {8, 2, 5}}, Expected{{8, 2, 5, 1}, {16, 0, 5}},
        Expected{{8, 2, 5, 0}, {4, 0, 6}}, Expected{{32, 2, 0, 1}, {32, 0, 0}}, Expected{{2, 1, 0, 0}, {2, 0, 1}},
        Expected{{3, 0, 0, 0}, {2, 0, 1}}}) {
    OpCase c;
    c.op = "adaptive_scale";
    c.inputs = {kScalar, kScalar, kScalar, kScalar};
    c.attributes = {{"window", std::int64_t{3}}, {"low", 2.0}, {"high", 32.0}};
    c.fill = [&](std::size_t input, std::size_t) { return e.in[input]; };
    c.tolerance = 0;
    c.reference = [&](const std::vector<Tensor>&) {
      std::vector<Tensor> out(3, Tensor::zeros(kScalar));
      for (std::size_t i = 0; i < out.size(); ++i) out[i][0] = e.out[i];
      return out;
    };
    check_op(c);
  }
}

// Passed on from piece to piece, the sum has the bits of the whole.
TEST(SumSquaresPart, PiecesGiveTheBitsOfTheWhole) {
  const ir::Registry registry = builtin();
  constexpr std::int64_t kElements = 3 * kSumChunk + 1234;
  std::vector<float> x(kElements);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(wave(1, i) * std::exp(wave(2, i)));
  ThreadPool pool(2);
  const auto sum = [&](const char* op, std::int64_t begin, std::int64_t end, const double* before, void* out,
                       DType dtype) {
    ir::Types inputs = {{DType::f32, {end - begin}}};
    ir::Attributes attributes;
    std::vector<const void*> in = {x.data() + begin};
    if (std::string(op) == "sum_squares_part") {
      inputs.push_back(before != nullptr ? TensorType{DType::f64, {}} : TensorType::none());
      attributes.set("last", dtype == DType::f32);
      in.push_back(before);
    }
    const ir::Types outputs = {{dtype, {}}};
    const ir::KernelDef& def = registry.at(op).kernels.at(device::Kind::cpu);
    const ir::KernelSpec spec{inputs, outputs, attributes, 2};
    std::vector<std::byte> workspace(def.workspace(spec));
    void* outs[] = {out};
    def.prepare(spec)->launch({in, outs, workspace.data(), &pool});
  };
  float whole = 0;
  sum("sum_squares", 0, kElements, nullptr, &whole, DType::f32);
  double so_far = 0;
  float last = 0;
  sum("sum_squares_part", 0, kSumChunk, nullptr, &so_far, DType::f64);
  sum("sum_squares_part", kSumChunk, 3 * kSumChunk, &so_far, &so_far, DType::f64);
  sum("sum_squares_part", 3 * kSumChunk, kElements, &so_far, &last, DType::f32);
  EXPECT_EQ(whole, last);
}

TEST(ClipScale, NormFactorAndFinite) {
  constexpr double inf = std::numeric_limits<float>::infinity();
  struct Expected {
    double total, loss, max_norm, norm, factor, finite;
  };
  for (const Expected& e : {Expected{4, 1, 1, 2, 1 / (2 + 1e-6), 1}, Expected{0.25, 1, 1, 0.5, 1, 1},
                            Expected{4, 1, 0, 2, 1, 1}, Expected{4, inf, 1, 2, 0, 0}}) {
    OpCase c;
    c.op = "clip_scale";
    c.inputs = {kScalar, kScalar};
    c.attributes = {{"max_norm", e.max_norm}};
    c.fill = [&](std::size_t input, std::size_t) { return input == 0 ? e.total : e.loss; };
    c.reference = [&](const std::vector<Tensor>&) {
      std::vector<Tensor> out(3, Tensor::zeros(kScalar));
      out[0][0] = e.norm;
      out[1][0] = e.factor;
      out[2][0] = e.finite;
      return out;
    };
    check_op(c);
  }
}

// Launched by hand: the relative error of an infinite norm is not a number.
TEST(ClipScale, InfiniteNormIsNotFinite) {
  const ir::Registry registry = builtin();
  const ir::Types inputs = {kScalar, kScalar, TensorType::none()};
  const ir::Types outputs(3, kScalar);
  const ir::Attributes attributes = {{"max_norm", 1.0}};
  const auto kernel = registry.at("clip_scale").kernels.at(device::Kind::cpu).prepare({inputs, outputs, attributes});
  for (const float total : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const float loss = 1;
    float norm = 0;
    float factor = -1;
    float finite = -1;
    const void* in[] = {&total, &loss, nullptr};
    void* out[] = {&norm, &factor, &finite};
    ThreadPool pool(1);
    kernel->launch({in, out, nullptr, &pool});
    EXPECT_FALSE(std::isfinite(norm));
    EXPECT_EQ(factor, 0);
    EXPECT_EQ(finite, 0);
  }
}

}  // namespace
}  // namespace trireme::ops
