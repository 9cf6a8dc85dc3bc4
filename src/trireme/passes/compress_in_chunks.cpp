#include "trireme/ops/compress/pack.h"
#include "trireme/passes/compressions.h"
#include "trireme/passes/own_momentum.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::ValueId;

class InChunks {
 public:
  InChunks(GradientSums& sums, const CompressGradients::Options& options)
      : sums_(sums),
        feedback_(options.error_feedback),
        one_way_(options.one_way),
        code_(options.kind == CompressGradients::Kind::bf16   ? "bf16"
              : options.kind == CompressGradients::Kind::int8 ? "int8"
                                                              : "sign"),
        block_(code_ == "sign" ? 128 : 256) {}

  // Layer by layer, so that what is alike can go together.
  std::vector<ValueId> run(const std::vector<Term>& terms) {
    std::vector<ValueId> values;
    values.reserve(terms.size());
    if (one_way_) {
      for (const Term& t : terms) {
        const std::string& name = t.sum->parameter;
        const ValueId packed = pack(t.value, name + "/residual", t.unit, 1, name);
        const ValueId term = unpack(packed, t.unit, {DType::f32, t.type.shape}, false, name + ".term");
        values.push_back(sums_.all_reduce(term, name + ".grad"));
      }
      return values;
    }
    for (const Term& t : terms)
      values.push_back(pack(t.value, t.sum->parameter + "/residual", t.unit, sums_.parts(), t.sum->parameter));
    const auto each = [&](auto&& f) {
      for (std::size_t i = 0; i < terms.size(); ++i) values[i] = f(terms[i], terms[i].sum->parameter, values[i]);
    };
    each([&](const Term&, const std::string& name, ValueId packed) {
      return sums_.all_to_all(packed, name + ".theirs");
    });
    each([&](const Term& t, const std::string& name, ValueId packed) {
      const ops::PackLayout layout(code_, t.type.elements(), sums_.parts(), block_);
      const ValueId chunk = unpack(packed, kNone, {DType::f32, {1, layout.chunk}}, true, name + ".chunk");
      return pack(chunk, name + "/residual_of_sum", kNone, 1, name + ".sum");
    });
    each([&](const Term&, const std::string& name, ValueId packed) { return sums_.all_gather(packed, name + ".all"); });
    each([&](const Term& t, const std::string& name, ValueId packed) {
      return unpack(packed, t.unit, t.type, false, name + ".grad");
    });
    return values;
  }

 private:
  ValueId pack(ValueId x, const std::string& residual, ValueId unit, std::int64_t parts, const std::string& label) {
    const std::int64_t elements = sums_.rebuild().fresh().type(x).elements();
    const ValueId carry = feedback_ ? sums_.own_state(residual, elements) : kNone;
    const auto packed =
        sums_.add("pack", {x, carry, unit}, {{"code", code_}, {"block", block_}, {"parts", parts}}, label + ".packed");
    if (feedback_) sums_.keep(carry, packed[1]);
    return packed.front();
  }

  ValueId unpack(ValueId packed, ValueId factor, const TensorType& type, bool sum, const std::string& label) {
    return sums_
        .add("unpack", {packed, factor},
             {{"code", code_},
              {"block", block_},
              {"shape", dims(type.shape)},
              {"dtype", std::string(name_of(type.dtype))},
              {"sum", sum}},
             label)
        .front();
  }

  GradientSums& sums_;
  bool feedback_;
  bool one_way_;
  std::string code_;
  std::int64_t block_;  // elements that share a scale
};

}  // namespace

std::vector<ValueId> sum_in_chunks(GradientSums& sums, const CompressGradients::Options& options,
                                   const std::vector<Term>& terms) {
  return InChunks(sums, options).run(terms);
}

void compress_in_chunks(GradientSums& sums, const CompressGradients::Options& options) {
  std::vector<Term> terms;
  for (const GradientSums::Sum& sum : sums.all())
    if (sum.type.elements() >= kSmallGradient) terms.push_back({&sum, sum.own, sums.unit(), sum.type});
  const std::vector<ValueId> values = sum_in_chunks(sums, options, terms);
  for (std::size_t i = 0; i < terms.size(); ++i) sums.set(*terms[i].sum, values[i]);
}

void compress_signs(GradientSums& sums, const CompressGradients::Options& options) {
  sums.drop_clip();
  const ValueId clip = sums.local_clip();
  std::vector<Term> packed;
  std::vector<OwnMomentum> momenta;
  for (const GradientSums::Sum& sum : sums.all()) {
    const OwnMomentum own = next_momentum(sums, sum, clip);
    const TensorType type{DType::f32, sum.type.shape};
    if (type.elements() >= kSmallGradient) {
      packed.push_back({&sum, own.fresh, kNone, type});
      momenta.push_back(own);
      continue;
    }
    const ValueId total = sums.all_reduce(own.fresh, sum.parameter + ".velocity.sum");
    const ValueId shaped =
        sums.add("weighted_sum", {kNone, total, kNone, kNone}, {{"shape", dims(type.shape)}}, sum.parameter + ".grad")
            .front();
    sums.set(sum, shaped);
    descend(sums, sum, shaped, own);
  }
  const std::vector<ValueId> values = sum_in_chunks(sums, options, packed);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    sums.set(*packed[i].sum, values[i]);
    descend(sums, *packed[i].sum, values[i], momenta[i]);
  }
}

}  // namespace trireme::passes
