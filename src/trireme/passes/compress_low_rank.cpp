#include "trireme/passes/compressions.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::ValueId;

// A matrix of which fewer numbers travel as two thin ones.
bool worth_it(const Shape& shape, std::int64_t rank) {
  if (shape.rank() < 2) return false;
  const Shape rows = shape.as_rows();
  return rows.elements() > (rows[0] + rows[1]) * rank;
}

class LowRank {
 public:
  LowRank(GradientSums& sums, const CompressGradients::Options& options) : sums_(sums), options_(options) {
    for (const GradientSums::Sum& sum : sums.all())
      if (worth_it(sum.type.shape, options.rank)) matrices_.push_back({&sum, sum.type.shape.as_rows()});
  }

  // Layer by layer, so that what is alike can go together.
  void run() {
    for (Matrix& m : matrices_) {
      const std::string& name = m.sum->parameter;
      if (options_.error_feedback) m.residual = sums_.own_state(name + "/residual", m.shape.elements());
      m.basis = sums_.shared_state(name + "/basis", {DType::f32, {m.shape[1], options_.rank}}, ir::Init::normal(1));
      m.value = weighted(m.residual, m.sum->own, kNone, sums_.unit(), 1.0, m.shape, name + ".matrix");
      m.left = matmul(m.value, m.basis, {}, name + ".left");
    }
    for (Matrix& m : matrices_) m.left = sums_.all_reduce(m.left, m.sum->parameter + ".left.sum");
    for (Matrix& m : matrices_) {
      const std::string& name = m.sum->parameter;
      m.left = sums_.add("orthonormalise", {m.left}, {}, name + ".left.basis").front();
      m.right = matmul(m.value, m.left, {{"trans_a", true}}, name + ".right");
    }
    for (Matrix& m : matrices_) m.right = sums_.all_reduce(m.right, m.sum->parameter + ".right.sum");
    for (Matrix& m : matrices_) expand(m);
  }

 private:
  struct Matrix {
    const GradientSums::Sum* sum;
    Shape shape;
    ValueId residual = kNone;
    ValueId basis = kNone;
    ValueId value = kNone;  // the own term
    ValueId left = kNone;
    ValueId right = kNone;
  };

  void expand(Matrix& m) {
    const std::string& name = m.sum->parameter;
    const ValueId product = matmul(m.left, m.right, {{"trans_b", true}}, name + ".product");
    sums_.keep(m.basis, m.right);
    if (m.residual != kNone)
      sums_.keep(m.residual, weighted(m.value, product, kNone, kNone, -1.0 / sums_.parts(), {1, m.shape.elements()},
                                      name + ".lost"));
    ValueId sum = weighted(kNone, product, sums_.unit(), kNone, 1.0, m.sum->type.shape, name + ".grad");
    if (m.sum->type.dtype != DType::f32)
      sum = sums_.add("cast", {sum}, {{"to", std::string(name_of(m.sum->type.dtype))}}, name + ".grad.low").front();
    sums_.set(*m.sum, sum);
  }

  ValueId weighted(ValueId a, ValueId b, ValueId times, ValueId over, double weight, const Shape& shape,
                   const std::string& label) {
    return sums_.add("weighted_sum", {a, b, times, over}, {{"b_weight", weight}, {"shape", dims(shape)}}, label)
        .front();
  }

  ValueId matmul(ValueId a, ValueId b, ir::Attributes attributes, const std::string& label) {
    return sums_.add("matmul", {a, b, kNone, kNone}, std::move(attributes), label).front();
  }

  GradientSums& sums_;
  const CompressGradients::Options& options_;
  std::vector<Matrix> matrices_;
};

}  // namespace

void compress_low_rank(GradientSums& sums, const CompressGradients::Options& options) { LowRank(sums, options).run(); }

}  // namespace trireme::passes
