#include <gtest/gtest.h>

#include <algorithm>

#include "support/accumulate_check.h"
#include "support/op_check.h"
#include "trireme/core/error.h"
#include "trireme/ops/all.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;
using Ints = std::vector<std::int64_t>;

// The index along each dimension of element e.
Ints index_of(const Shape& shape, std::size_t e) {
  Ints index(static_cast<std::size_t>(shape.rank()));
  auto rest = static_cast<std::int64_t>(e);
  for (int d = shape.rank(); d-- > 0;) {
    index[static_cast<std::size_t>(d)] = rest % shape[d];
    rest /= shape[d];
  }
  return index;
}

std::size_t element_at(const Shape& shape, const Ints& index) {
  std::int64_t e = 0;
  for (int d = 0; d < shape.rank(); ++d) e = e * shape[d] + index[static_cast<std::size_t>(d)];
  return static_cast<std::size_t>(e);
}

// y[e] = x[source(index of e)]
Tensor gather(const Tensor& x, const Shape& shape, const std::function<Ints(const Ints&)>& source) {
  Tensor y = Tensor::zeros({x.type.dtype, shape});
  for (std::size_t e = 0; e < y.data.size(); ++e) y[e] = x[element_at(x.type.shape, source(index_of(shape, e)))];
  return y;
}

OpCase float_case(const std::string& op, const TensorType& x, ir::Attributes attributes) {
  OpCase c;
  c.op = op;
  c.inputs = {x};
  c.attributes = std::move(attributes);
  if (x.dtype == DType::f32) c.differentiate = {0};
  c.tolerance = x.dtype == DType::f32 ? 2e-6 : 1e-2;
  return c;
}

TEST(Reshape, KeepsTheElements) {
  for (const auto& [from, to] : std::vector<std::pair<Shape, Ints>>{
           {{2, 3, 12}, {2, 3, 4, 3}}, {{7}, {1, 7, 1}}, {{}, {1}}, {{4, 6}, {-1}}, {{5, 1, 3}, {5, 3}}}) {
    OpCase c = float_case("reshape", {DType::f32, from}, {{"shape", to}});
    c.reference = [](const std::vector<Tensor>& in) { return in; };
    c.check_factors = false;  // the extents are attributes
    check_op(c);
  }
}

TEST(Reshape, Factors) {
  const ir::Registry registry = builtin();
  const auto factors = [&](const Shape& from, const Shape& to) {
    const TensorType x = {DType::f32, from};
    const TensorType y = {DType::f32, to};
    return registry.at("reshape").factors(std::span(&x, 1), std::span(&y, 1), {}).str();
  };
  EXPECT_EQ(factors({2, 3, 12}, {2, 3, 4, 3}), "d0 d1 d2 -> d0 d1 d2 d3!");
  EXPECT_EQ(factors({2, 3, 5}, {6, 5}), "d0 d1! d2 -> d0 d2");
  EXPECT_EQ(factors({4, 1, 5}, {4, 5}), "d0 d2! d1 -> d0 d1");
}

TEST(Reshape, RefusesAnotherNumberOfElements) {
  const ir::Registry registry = builtin();
  const TensorType x = {DType::f32, {2, 3}};
  for (const Ints& shape : {Ints{7}, Ints{-1, 4}, Ints{-1, -1}, Ints{-2, -3}})
    EXPECT_THROW(registry.at("reshape").infer(std::span(&x, 1), {{"shape", shape}}), Error);
}

TEST(Transpose, AnyPermutation) {
  const std::vector<std::pair<Shape, Ints>> cases = {{{1, 1}, {1, 0}},
                                                     {{3, 7}, {1, 0}},
                                                     {{33, 65}, {1, 0}},
                                                     {{2, 5, 3, 17}, {0, 2, 1, 3}},
                                                     {{2, 19, 3, 18}, {0, 3, 1, 2}},
                                                     {{2, 3, 5, 7}, {3, 2, 1, 0}},
                                                     {{300, 131}, {1, 0}},
                                                     {{4, 5, 6}, {0, 1, 2}},
                                                     {{7}, {0}},
                                                     {{17, 1, 40}, {2, 1, 0}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::i64})
    for (const auto& [shape, perm] : cases) {
      OpCase c = float_case("transpose", {dtype, shape}, {{"perm", perm}});
      c.fill = [](std::size_t, std::size_t e) { return static_cast<double>(e % 119); };
      c.reference = [perm = perm](const std::vector<Tensor>& in) {
        Shape result = in[0].type.shape;
        for (int d = 0; d < result.rank(); ++d)
          result[d] = in[0].type.shape[static_cast<int>(perm[static_cast<std::size_t>(d)])];
        return std::vector<Tensor>{gather(in[0], result, [&](const Ints& at) {
          Ints from(at.size());
          for (std::size_t d = 0; d < at.size(); ++d) from[static_cast<std::size_t>(perm[d])] = at[d];
          return from;
        })};
      };
      check_op(c);
    }
}

TEST(Slice, TakesARange) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
    for (int dim = 0; dim < 3; ++dim)
      for (const auto& [start, end] : {std::pair<int, int>{0, 1}, {1, 4}, {2, 5}, {0, 5}}) {
        Shape shape{3, 7, 9};
        shape[dim] = 5;
        OpCase c = float_case("slice", {dtype, shape},
                              {{"dim", std::int64_t{dim}}, {"start", std::int64_t{start}}, {"end", std::int64_t{end}}});
        c.fill = [](std::size_t, std::size_t e) { return static_cast<double>(e % 119); };
        c.reference = [dim, first = start, count = end - start](const std::vector<Tensor>& in) {
          Shape result = in[0].type.shape;
          result[dim] = count;
          return std::vector<Tensor>{gather(in[0], result, [&](Ints at) {
            at[static_cast<std::size_t>(dim)] += first;
            return at;
          })};
        };
        check_op(c);
      }
}

TEST(SliceGrad, PutsZerosAround) {
  OpCase c = float_case("slice_grad", {DType::bf16, {3, 2, 65}},
                        {{"dim", std::int64_t{1}}, {"start", std::int64_t{4}}, {"extent", std::int64_t{7}}});
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({DType::bf16, {3, 7, 65}});
    for (std::size_t e = 0; e < in[0].data.size(); ++e) {
      Ints at = index_of(in[0].type.shape, e);
      at[1] += 4;
      y[element_at(y.type.shape, at)] = in[0][e];
    }
    return std::vector<Tensor>{y};
  };
  check_op(c);
}

TEST(SliceUpdate, ReplacesARange) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int dim = 0; dim < 3; ++dim)
      for (const std::int64_t start : {0, 2, 4}) {
        Shape shape{3, 7, 65};
        shape[dim] = 6;
        Shape part = shape;
        part[dim] = 2;
        OpCase c;
        c.op = "slice_update";
        c.inputs = {{dtype, shape}, {dtype, part}};
        c.attributes = {{"dim", std::int64_t{dim}}, {"start", start}};
        c.reference = [dim, start](const std::vector<Tensor>& in) {
          Tensor y = in[0];
          for (std::size_t e = 0; e < in[1].data.size(); ++e) {
            Ints at = index_of(in[1].type.shape, e);
            at[static_cast<std::size_t>(dim)] += start;
            y[element_at(y.type.shape, at)] = in[1][e];
          }
          return std::vector<Tensor>{y};
        };
        check_op(c);
      }
}

TEST(Concat, PutsOperandsBehindEachOther) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int dim = 0; dim < 3; ++dim) {
      OpCase c;
      c.op = "concat";
      for (const std::int64_t extent : {2, 1, 5}) {
        Shape shape{3, 7, 65};
        shape[dim] = extent;
        c.inputs.push_back({dtype, shape});
      }
      c.attributes = {{"dim", std::int64_t{dim}}};
      if (dtype == DType::f32) c.differentiate = {0, 1, 2};
      c.reference = [dim](const std::vector<Tensor>& in) {
        Shape result = in[0].type.shape;
        result[dim] = 8;
        Tensor y = Tensor::zeros({in[0].type.dtype, result});
        std::int64_t start = 0;
        for (const Tensor& x : in) {
          for (std::size_t e = 0; e < x.data.size(); ++e) {
            Ints at = index_of(x.type.shape, e);
            at[static_cast<std::size_t>(dim)] += start;
            y[element_at(result, at)] = x[e];
          }
          start += x.type.shape[dim];
        }
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

Ints kept_of(const Ints& at, const Ints& dims) {
  Ints kept;
  for (std::size_t d = 0; d < at.size(); ++d)
    if (std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) == dims.end()) kept.push_back(at[d]);
  return kept;
}

Shape kept_shape(const Shape& shape, const Ints& dims) {
  const Ints kept = kept_of(Ints(shape.begin(), shape.end()), dims);
  return Shape(std::span<const std::int64_t>(kept));
}

const std::vector<std::pair<Shape, Ints>> kReductions = {{{7}, {0}},
                                                         {{}, {}},
                                                         {{1, 1}, {0}},
                                                         {{33, 65}, {0}},
                                                         {{33, 65}, {1}},
                                                         {{33, 65}, {0, 1}},
                                                         {{5, 3, 17}, {1}},
                                                         {{5, 3, 4, 17}, {0, 2}},
                                                         {{5, 3, 4, 17}, {1, 3}},
                                                         {{2, 3}, {}},
                                                         {{2, 4, 4, 10}, {1, 2}},
                                                         {{3, 1, 5}, {1}}};

TEST(Reduce, EveryKindAndPattern) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::string kind : {"sum", "mean", "max"})
      for (const std::string out : {"same", "f32"})
        for (const auto& [shape, dims] : kReductions) {
          OpCase c = float_case("reduce", {dtype, shape}, {{"kind", kind}, {"dims", dims}, {"out", out}});
          if (kind == "max") c.differentiate.clear();
          c.reference = [kind, out, dims = dims](const std::vector<Tensor>& in) {
            const Shape& full = in[0].type.shape;
            Tensor y = Tensor::zeros({out == "f32" ? DType::f32 : in[0].type.dtype, kept_shape(full, dims)});
            std::fill(y.data.begin(), y.data.end(), kind == "max" ? -1e30 : 0.0);
            const double count = static_cast<double>(in[0].data.size()) / static_cast<double>(y.data.size());
            for (std::size_t e = 0; e < in[0].data.size(); ++e) {
              double& to = y[element_at(y.type.shape, kept_of(index_of(full, e), dims))];
              if (kind == "max")
                to = std::max(to, in[0][e]);
              else
                to += in[0][e] / (kind == "mean" ? count : 1);
            }
            return std::vector<Tensor>{y};
          };
          // Terms of both signs cancel; a positive sum shows the relative error of the additions alone.
          c.fill = [](std::size_t, std::size_t e) { return 0.25 + static_cast<double>(e * 37 % 101) / 128.0; };
          check_op(c);
        }
}

// Large enough for every way of cutting the work.
TEST(Reduce, ManyChunks) {
  for (const auto& [shape, dims] : std::vector<std::pair<Shape, Ints>>{{{3001, 131}, {0}},
                                                                       {{2, 150001}, {1}},
                                                                       {{300003}, {0}},
                                                                       {{3, 701, 130}, {1}},
                                                                       {{40, 5, 2100}, {0, 2}},
                                                                       {{3, 100001}, {0}},
                                                                       {{5001, 128}, {0}},
                                                                       {{3, 1201, 192}, {0, 1}}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      OpCase c = float_case("reduce", {dtype, shape}, {{"dims", dims}, {"out", std::string("f32")}});
      c.differentiate.clear();
      c.check_factors = false;
      c.tolerance = 2e-6;
      c.fill = [](std::size_t, std::size_t e) { return 0.25 + static_cast<double>(e * 37 % 101) / 128.0; };
      c.reference = [dims = dims](const std::vector<Tensor>& in) {
        Tensor y = Tensor::zeros({DType::f32, kept_shape(in[0].type.shape, dims)});
        for (std::size_t e = 0; e < in[0].data.size(); ++e)
          y[element_at(y.type.shape, kept_of(index_of(in[0].type.shape, e), dims))] += in[0][e];
        return std::vector<Tensor>{y};
      };
      check_op(c);
    }
}

TEST(Reduce, Accumulates) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::string out : {"same", "f32"})
      for (const auto& [shape, dims] : std::vector<std::pair<Shape, Ints>>{{{33, 65}, {0}},
                                                                           {{33, 65}, {1}},
                                                                           {{33, 65}, {0, 1}},
                                                                           {{3001, 131}, {0}},
                                                                           {{2600, 128}, {0}},
                                                                           {{300003}, {0}}}) {
        OpCase c = float_case("reduce", {dtype, shape}, {{"dims", dims}, {"out", out}});
        c.fill = [](std::size_t, std::size_t e) { return 0.25 + static_cast<double>(e * 37 % 101) / 128.0; };
        c.reference = [out, dims = dims](const std::vector<Tensor>& in) {
          Tensor y = Tensor::zeros({out == "f32" ? DType::f32 : in[0].type.dtype, kept_shape(in[0].type.shape, dims)});
          for (std::size_t e = 0; e < in[0].data.size(); ++e)
            y[element_at(y.type.shape, kept_of(index_of(in[0].type.shape, e), dims))] += in[0][e];
          return std::vector<Tensor>{y};
        };
        testing::check_accumulates(c);
      }
}

TEST(Broadcast, IsTheInverseOfReduce) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [shape, dims] : kReductions) {
      OpCase c = float_case("broadcast", {dtype, kept_shape(shape, dims)},
                            {{"shape", Ints(shape.begin(), shape.end())}, {"dims", dims}});
      c.check_factors = false;  // the extents are attributes
      c.reference = [shape = shape, dims = dims](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{gather(in[0], shape, [&](const Ints& at) { return kept_of(at, dims); })};
      };
      check_op(c);
    }
}

}  // namespace
}  // namespace trireme::ops
