// keep_largest and ramp against plain references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

const TensorType kScalar{DType::f32, {}};

// Ties and all sizes.
double value(std::size_t i) { return std::round(4 * std::sin(1.7 * static_cast<double>(i * i) + 0.3)) / 4; }

// The first `keep` of the elements [begin, end) in falling order, those that come first before their equals.
void keep_first(const std::vector<double>& x, const std::vector<double>& among, std::size_t begin, std::size_t end,
                std::size_t keep, bool magnitude, Tensor& kept) {
  std::vector<std::size_t> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  std::erase_if(order, [&](std::size_t i) { return !among.empty() && among[i] == 0; });
  const auto size = [&](std::size_t i) { return magnitude ? std::abs(x[i]) : x[i]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  for (std::size_t i = 0; i < std::min(keep, order.size()); ++i) kept[order[i]] = 1;
}

TEST(KeepLargest, OfAWholeTensor) {
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{40, 33}, Shape{300, 70}})
    for (const double fraction : {0.0, 0.3, 0.8, 1.0})
      for (const bool among : {false, true})
        for (const bool magnitude : {false, true}) {
          const TensorType type{DType::f32, shape};
          OpCase c;
          c.op = "keep_largest";
          c.inputs = {type, among ? type : TensorType::none(), kScalar};
          c.attributes = {{"magnitude", magnitude}, {"keep", std::int64_t{0}}, {"of", std::int64_t{0}}};
          c.fill = [&](std::size_t input, std::size_t i) {
            return input == 2 ? fraction : input == 1 ? (i % 3 == 1 ? 0.0 : 1.0) : value(i);
          };
          c.reference = [&](const std::vector<Tensor>& in) {
            Tensor kept = Tensor::zeros(type);
            const std::size_t n = in[0].data.size();
            const auto dropped = static_cast<std::size_t>(std::round(in[2][0] * static_cast<double>(n)));
            keep_first(in[0].data, in[1].data, 0, n, n - dropped, magnitude, kept);
            return std::vector<Tensor>{kept};
          };
          check_op(c);
        }
}

TEST(KeepLargest, TwoOfFour) {
  for (const Shape& shape : {Shape{4}, Shape{6, 8}, Shape{5, 2, 4}}) {
    const TensorType type{DType::f32, shape};
    OpCase c;
    c.op = "keep_largest";
    c.inputs = {type, TensorType::none(), TensorType::none()};
    c.attributes = {{"magnitude", true}, {"keep", std::int64_t{2}}, {"of", std::int64_t{4}}};
    c.fill = [](std::size_t, std::size_t i) { return value(i); };
    c.reference = [&](const std::vector<Tensor>& in) {
      Tensor kept = Tensor::zeros(type);
      for (std::size_t i = 0; i < kept.data.size(); i += 4) keep_first(in[0].data, {}, i, i + 4, 2, true, kept);
      return std::vector<Tensor>{kept};
    };
    check_op(c);
  }
}

TEST(Ramp, FollowsItsFormula) {
  for (const char* kind : {"cubic", "geometric"})
    for (const double count : {0.0, 1.0, 3.0, 5.0, 9.0}) {
      OpCase c;
      c.op = "ramp";
      c.inputs = {kScalar};
      c.attributes = {{"kind", std::string(kind)}, {"to", 0.8}, {"steps", std::int64_t{5}}};
      c.fill = [&](std::size_t, std::size_t) { return count; };
      c.reference = [&](const std::vector<Tensor>& in) {
        const double t = std::min(1.0, in[0][0] / 5);
        Tensor y = Tensor::zeros(kScalar);
        y[0] = std::string(kind) == "cubic" ? 0.8 * (1 - std::pow(1 - t, 3)) : 1 - std::pow(0.2, t);
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

}  // namespace
}  // namespace trireme::ops
