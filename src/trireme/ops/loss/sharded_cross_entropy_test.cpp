// The parts of a loss over a sharded vocabulary, each against its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

constexpr double kScale = 0.25;

// Every fifth row is ignored; targets are in all shards.
double target(std::size_t row, std::int64_t words) {
  return row % 5 == 3 ? -1.0 : static_cast<double>((row * row * 7 + 3) % static_cast<std::size_t>(words));
}

// Of a row: the logits of the words that this place has.
std::vector<double> logits(const std::vector<Tensor>& in, std::size_t row, std::int64_t words) {
  const auto vocab = static_cast<std::size_t>(in[1].type.shape[0]), dim = static_cast<std::size_t>(in[1].type.shape[1]);
  const auto first = static_cast<std::size_t>(in[3][0]) * vocab;
  std::vector<double> x;
  for (std::size_t v = 0; v < vocab && first + v < static_cast<std::size_t>(words); ++v) {
    x.push_back(0);
    for (std::size_t d = 0; d < dim; ++d) x.back() += in[0][row * dim + d] * in[1][v * dim + d];
  }
  return x;
}

std::int64_t own_target(const std::vector<Tensor>& in, std::size_t row, std::size_t here) {
  const auto own = static_cast<std::int64_t>(in[2][row]) - static_cast<std::int64_t>(in[3][0]) * in[1].type.shape[0];
  return in[2][row] >= 0 && own >= 0 && own < static_cast<std::int64_t>(here) ? own : -1;
}

OpCase shard_case(const char* op, std::int64_t rows, std::int64_t vocab, std::int64_t dim, std::int64_t words,
                  std::int64_t place, DType dtype, std::int64_t chunk) {
  OpCase c;
  c.op = op;
  c.inputs = {{dtype, {rows, dim}}, {dtype, {vocab, dim}}, {DType::i32, {rows}}, {DType::i64, {}}};
  c.attributes = {{"vocab", words}, {"chunk", chunk}};
  c.fill = [=](std::size_t input, std::size_t element) {
    if (input == 2) return target(element, words);
    if (input == 3) return static_cast<double>(place);
    if (input == 4) return 9 + 0.1 * static_cast<double>(element % 7);  // a log of a sum over all words
    if (input == 5) return 0.05 * static_cast<double>(element % 11);
    // Logits in 16 bits, as a GPU has them, are exact enough where they are small.
    return (input == 1 ? 0.2 : 1.0) * std::sin(0.3 + 2.7 * static_cast<double>(element + 5 * input));
  };
  if (dtype != DType::f32) c.tolerance = 1e-2;
  return c;
}

struct Sizes {
  std::int64_t rows, vocab, dim, words, place, chunk;
};
// The last places have padding, or nothing else.
const std::vector<Sizes> kSizes = {{5, 4, 3, 12, 0, 0},
                                   {21, 17, 33, 50, 2, 0},
                                   {130, 65, 7, 130, 1, 16},
                                   {262, 551, 17, 1103, 1, 100},
                                   {9, 2, 5, 4, 1, 4}};

TEST(LinearLse, OfTheWordsOfAPlace) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& s : kSizes) {
      OpCase c = shard_case("linear_lse", s.rows, s.vocab, s.dim, s.words, s.place, dtype, s.chunk);
      c.reference = [words = s.words](const std::vector<Tensor>& in) {
        Tensor lse = Tensor::zeros({DType::f32, in[2].type.shape}), at = lse;
        for (std::size_t row = 0; row < in[2].data.size(); ++row) {
          const std::vector<double> x = logits(in, row, words);
          double sum = 0;
          for (const double v : x) sum += std::exp(v);
          lse[row] = std::log(sum);
          const std::int64_t own = own_target(in, row, x.size());
          at[row] = own < 0 ? 0 : x[static_cast<std::size_t>(own)];
        }
        return std::vector<Tensor>{lse, at};
      };
      check_op(c);
    }
}

TEST(LinearCrossEntropyGiven, IsThePlacesPart) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool gradients : {false, true})
      for (const Sizes& s : kSizes) {
        OpCase c = shard_case("linear_cross_entropy_given", s.rows, s.vocab, s.dim, s.words, s.place, dtype, s.chunk);
        c.inputs.push_back({DType::f32, {s.rows}});
        c.inputs.push_back({DType::f32, {s.rows}});
        c.attributes.set("scale", kScale);
        c.attributes.set("with_gradients", gradients);
        c.reference = [words = s.words, gradients](const std::vector<Tensor>& in) {
          const auto dim = static_cast<std::size_t>(in[1].type.shape[1]);
          Tensor loss = Tensor::zeros({DType::f32, {}}), dx = Tensor::zeros(in[0].type), dw = Tensor::zeros(in[1].type);
          for (std::size_t row = 0; row < in[2].data.size(); ++row) {
            if (in[2][row] < 0) continue;
            loss[0] += kScale * (in[4][row] - in[5][row]);
            const std::vector<double> x = logits(in, row, words);
            for (std::size_t v = 0; v < x.size(); ++v) {
              const bool at = own_target(in, row, x.size()) == static_cast<std::int64_t>(v);
              // The logit of the target is given.
              const double p = kScale * (std::exp((at ? in[5][row] : x[v]) - in[4][row]) - (at ? 1 : 0));
              for (std::size_t d = 0; d < dim; ++d) {
                dx[row * dim + d] += p * in[1][v * dim + d];
                dw[v * dim + d] += p * in[0][row * dim + d];
              }
            }
          }
          if (!gradients) return std::vector<Tensor>{loss};
          return std::vector<Tensor>{loss, dx, dw};
        };
        check_op(c);
      }
}

TEST(JoinLse, OfTermsIsTheLogOfTheSum) {
  for (const char* op : {"lse_terms", "join_lse"}) {
    OpCase c;
    c.op = op;
    c.inputs = {{DType::f32, {37}}, {DType::f32, {37}}};
    const bool terms = c.op == "lse_terms";
    c.fill = [terms](std::size_t input, std::size_t i) {
      if (terms && input == 0 && i % 6 == 5) return -std::numeric_limits<double>::infinity();  // a place without words
      return (input == 0 ? 1.0 : 2.0) + 0.1 * static_cast<double>(i);
    };
    c.reference = [terms](const std::vector<Tensor>& in) {
      Tensor y = in[0];
      for (std::size_t i = 0; i < y.data.size(); ++i)
        y[i] = terms ? std::exp(in[0][i] - in[1][i]) : in[1][i] + std::log(in[0][i]);
      return std::vector<Tensor>{y};
    };
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme
