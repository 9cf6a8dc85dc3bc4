#include "trireme/ops/matmul/epilogue.h"

#include "trireme/ops/activation.h"

namespace trireme::ops {
namespace {

template <bool Accumulate, class Y>
HWY_INLINE void put(simd::Vec v, Y* y, std::int64_t count) {
  if constexpr (Accumulate) v = v + simd::load_n(y, count);
  simd::store_n(v, y, count);
}

template <class Activation, class Y, bool Accumulate>
void activate(const EpilogueTile& t) {
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float* sums = t.sums + row * t.ld_sums;
    Y* y = static_cast<Y*>(t.y) + row * t.ld;
    Y* pre = t.pre == nullptr ? nullptr : static_cast<Y*>(t.pre) + row * t.ld;
    simd::for_vectors(t.columns, [&](std::int64_t i, std::int64_t count) {
      simd::Vec v = simd::load_n(sums + i, count);
      if (t.bias != nullptr) v = v + simd::load_n(t.bias + i, count);
      // What an activation that is not fused would read: a recomputed value must have the same bits.
      v = simd::rounded<Y>(v);
      if (pre != nullptr) simd::store_n(v, pre + i, count);
      put<Accumulate>(Activation::value(v), y + i, count);
    });
  }
}

template <class Activation, class Y, class Aux, bool Accumulate>
void differentiate(const EpilogueTile& t) {
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float* sums = t.sums + row * t.ld_sums;
    const Aux* aux = static_cast<const Aux*>(t.aux) + row * t.ld;
    Y* y = static_cast<Y*>(t.y) + row * t.ld;
    simd::for_vectors(t.columns, [&](std::int64_t i, std::int64_t count) {
      const simd::Vec v =
          simd::rounded<Y>(simd::load_n(sums + i, count)) * Activation::derivative(simd::load_n(aux + i, count));
      put<Accumulate>(v, y + i, count);
    });
  }
}

// Of what a sum that is not fused would read.
template <class Y, bool Accumulate>
void add(const EpilogueTile& t) {
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float* sums = t.sums + row * t.ld_sums;
    const Y* aux = static_cast<const Y*>(t.aux) + row * t.ld;
    Y* y = static_cast<Y*>(t.y) + row * t.ld;
    simd::for_vectors(t.columns, [&](std::int64_t i, std::int64_t count) {
      put<Accumulate>(simd::rounded<Y>(simd::load_n(sums + i, count)) + simd::load_n(aux + i, count), y + i, count);
    });
  }
}

}  // namespace

Epilogue matmul_epilogue(const ir::KernelSpec& spec) {
  const std::string& derivative = spec.attributes.text("activation_grad");
  return dispatch_compute(spec.outputs[0].dtype, [&]<class Y>(Y) -> Epilogue {
    if (spec.attributes.boolean("add")) return spec.accumulate ? add<Y, true> : add<Y, false>;
    if (derivative == "none")
      return with_activation(spec.attributes.text("activation"), [&]<class A>(A) -> Epilogue {
        return spec.accumulate ? activate<A, Y, true> : activate<A, Y, false>;
      });
    return dispatch_compute(spec.inputs[3].dtype, [&]<class Aux>(Aux) -> Epilogue {
      return with_activation(derivative, [&]<class A>(A) -> Epilogue {
        return spec.accumulate ? differentiate<A, Y, Aux, true> : differentiate<A, Y, Aux, false>;
      });
    });
  });
}

}  // namespace trireme::ops
