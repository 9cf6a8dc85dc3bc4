#include "trireme/device/cpu/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::device::cpu {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// One engine for the process: it holds nothing but the choice of the CPU.
const dnnl::engine& engine() {
  static const dnnl::engine instance = [] {
    // The AMX bf16 kernels of oneDNN 2.6 end in an illegal instruction on CPUs that have AMX. The cap must come before
    // the first primitive; if someone else was earlier, theirs stands.
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

// oneDNN is built on OpenMP here and would start a team of its own in each of our threads. The setting belongs to the
// calling thread, which may be the user's, so it is put back.
class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreaded() { omp_set_num_threads(before_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int before_;
};

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return dnnl::memory::data_type::f32;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    default: fail("oneDNN kernels take f32 or bf16, not {}", name_of(dtype));
  }
}

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

dnnl::primitive_attr attributes(bool accumulate) {
  dnnl::primitive_attr result;
  result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0F);
    result.set_post_ops(ops);
  }
  return result;
}

template <class F>
auto guarded(const char* what, F&& f) {
  const SingleThreaded guard;
  try {
    return f();
  } catch (const dnnl::error& e) {
    fail("oneDNN: {}: {}", what, e.what());
  }
}

// A primitive with the memory objects of its operands, one set per worker. Handles are exchanged before each run.
class Operation {
 public:
  Operation() = default;
  Operation(dnnl::primitive primitive, const std::vector<std::pair<int, Desc>>& operands, int workers)
      : primitive_(std::move(primitive)) {
    calls_.resize(static_cast<std::size_t>(workers));
    for (Call& call : calls_) {
      call.stream = dnnl::stream(engine());
      for (const auto& [argument, desc] : operands) {
        call.memories.push_back(dnnl::memory(desc, engine(), DNNL_MEMORY_NONE));
        call.arguments.push_back({argument, call.memories.back().get()});
      }
    }
  }

  explicit operator bool() const { return static_cast<bool>(primitive_); }

  // Pointers in the order of the operands.
  template <std::size_t N>
  void run(int worker, const std::array<const void*, N>& pointers) const {
    const Call& call = calls_[static_cast<std::size_t>(worker)];
    TRI_CHECK(call.memories.size() == N, "{} operands, {} pointers", call.memories.size(), N);
    const SingleThreaded guard;
    // The C calls, because the C++ ones build a map and a vector each time.
    for (std::size_t i = 0; i < N; ++i) {
      void* const pointer = const_cast<void*>(pointers[i]);
      void* current = nullptr;
      dnnl_memory_get_data_handle(call.memories[i].get(), &current);
      // Setting a handle also clears the padding of blocked layouts: worth avoiding when nothing changes.
      if (pointer != current) dnnl_memory_set_data_handle_v2(call.memories[i].get(), pointer, call.stream.get());
    }
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), call.stream.get(), static_cast<int>(N), call.arguments.data());
    if (status != dnnl_success) fail("oneDNN: a primitive failed with status {}", static_cast<int>(status));
  }

 private:
  struct Call {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  dnnl::primitive primitive_;
  std::vector<Call> calls_;
};

// oneDNN's blocked kernel takes a transposed matrix only when it is dense. Rows of one that is not are first copied
// together, and since that needs room, long sums over a transposed `a` (weight gradients) run in slices of k: the slice
// depends on the problem alone. Slices need an f32 result to add up in.
constexpr std::int64_t kSlice = 512;

struct GemmPlan {
  GemmSpec spec;
  std::int64_t slice = 0, slices = 0, last = 0;  // `last` may be shorter
  bool copy_a = false, copy_b = false;
  std::size_t copy_a_bytes = 0, copy_b_bytes = 0;

  explicit GemmPlan(const GemmSpec& s) : spec(s) {
    TRI_CHECK(s.m > 0 && s.n > 0 && s.k > 0, "gemm of {} x {} x {}", s.m, s.n, s.k);
    TRI_CHECK(!s.accumulate || s.output == DType::f32, "only an f32 gemm accumulates");
    const bool sliced = s.trans_a && s.output == DType::f32;
    slice = sliced ? std::min(s.k, kSlice) : s.k;
    slices = (s.k + slice - 1) / slice;
    last = s.k - (slices - 1) * slice;
    copy_a = s.trans_a && s.lda != s.m;
    copy_b = s.trans_b && s.ldb != slice;
    if (copy_a) copy_a_bytes = aligned(static_cast<std::size_t>(slice * s.m) * size_of(s.input));
    if (copy_b) copy_b_bytes = aligned(static_cast<std::size_t>(slice * s.n) * size_of(s.input));
  }

  dnnl::matmul::primitive_desc describe(std::int64_t k, bool accumulate) const {
    const auto matrix = [](std::int64_t rows, std::int64_t columns, DType dtype, bool transposed, std::int64_t ld) {
      return Desc({rows, columns}, data_type(dtype), transposed ? Dims{1, ld} : Dims{ld, 1});
    };
    const Desc a = matrix(spec.m, k, spec.input, spec.trans_a, copy_a ? spec.m : spec.lda);
    const Desc b = matrix(k, spec.n, spec.input, spec.trans_b, copy_b ? k : spec.ldb);
    const Desc c = matrix(spec.m, spec.n, spec.output, false, spec.ldc);
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes(accumulate), engine());
  }

  std::size_t scratch_bytes() const {
    const auto of = [&](std::int64_t k, bool accumulate) {
      return describe(k, accumulate).scratchpad_desc().get_size();
    };
    std::size_t most = of(slice, spec.accumulate);
    if (slices > 1) most = std::max({most, of(slice, true), of(last, true)});
    return copy_a_bytes + copy_b_bytes + aligned(most);
  }
};

void copy_rows(const void* from, void* to, std::int64_t rows, std::size_t row_bytes, std::size_t stride_bytes) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(i) * row_bytes,
                static_cast<const std::byte*>(from) + static_cast<std::size_t>(i) * stride_bytes, row_bytes);
}

}  // namespace

struct Gemm::Impl {
  GemmPlan plan;
  Operation first, middle, last;

  Impl(const GemmSpec& spec, int workers) : plan(spec) {
    const auto prepare = [&](std::int64_t k, bool accumulate) {
      const dnnl::matmul::primitive_desc desc = plan.describe(k, accumulate);
      return Operation(dnnl::matmul(desc),
                       {{DNNL_ARG_SRC, desc.src_desc()},
                        {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                        {DNNL_ARG_DST, desc.dst_desc()},
                        {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
                       workers);
    };
    first = prepare(plan.slice, spec.accumulate);
    if (plan.slices > 2) middle = prepare(plan.slice, true);
    if (plan.slices > 1) last = prepare(plan.last, true);
  }

  void run(int worker, const void* a, const void* b, void* c, void* scratch) const {
    const GemmSpec& s = plan.spec;
    const std::size_t element = size_of(s.input);
    auto* const room_a = static_cast<std::byte*>(scratch);
    auto* const room_b = room_a + plan.copy_a_bytes;
    auto* const pad = room_b + plan.copy_b_bytes;
    for (std::int64_t i = 0; i < plan.slices; ++i) {
      const std::int64_t begin = i * plan.slice;
      const std::int64_t k = i + 1 < plan.slices ? plan.slice : plan.last;
      const auto offset = [&](bool rows, std::int64_t ld) {
        return static_cast<std::size_t>(rows ? begin * ld : begin) * element;
      };
      const void* slice_a = static_cast<const std::byte*>(a) + offset(s.trans_a, s.lda);
      const void* slice_b = static_cast<const std::byte*>(b) + offset(!s.trans_b, s.ldb);
      if (plan.copy_a) {
        copy_rows(slice_a, room_a, k, static_cast<std::size_t>(s.m) * element,
                  static_cast<std::size_t>(s.lda) * element);
        slice_a = room_a;
      }
      if (plan.copy_b) {
        copy_rows(slice_b, room_b, s.n, static_cast<std::size_t>(k) * element,
                  static_cast<std::size_t>(s.ldb) * element);
        slice_b = room_b;
      }
      const Operation& operation = i == 0 ? first : i + 1 < plan.slices ? middle : last;
      operation.run<4>(worker, {slice_a, slice_b, c, pad});
    }
  }
};

Gemm::Gemm(const GemmSpec& spec, int workers)
    : impl_(guarded("gemm", [&] { return std::make_unique<Impl>(spec, workers); })) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

std::size_t Gemm::scratch_bytes(const GemmSpec& spec) {
  return guarded("gemm", [&] { return GemmPlan(spec).scratch_bytes(); });
}

void Gemm::run(int worker, const void* a, const void* b, void* c, void* scratch) const {
  impl_->run(worker, a, b, c, scratch);
}

namespace {

struct ConvPlan {
  using Pass = ConvSpec::Pass;

  Pass pass;
  Desc x, y, weights, plain;  // `weights` in the library's layout, `plain` in ours
  Desc bias;
  Desc scratchpad;
  dnnl::primitive_desc_base desc;

  explicit ConvPlan(const ConvSpec& s) : pass(s.pass) {
    using dnnl::memory;
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const auto type = data_type(s.dtype);
    const auto weight_type = pass == Pass::weight_gradient ? memory::data_type::f32 : type;
    x = Desc({s.n, s.c, s.h, s.w}, type, memory::format_tag::nhwc);
    y = Desc({s.n, s.k, s.p, s.q}, type, memory::format_tag::nhwc);
    const std::int64_t c = s.c / s.groups;
    const std::int64_t k = s.k / s.groups;
    Dims dims{k, c, s.r, s.s};
    Dims strides{s.r * s.s * c, 1, s.s * c, c};
    if (s.groups > 1) {
      dims.insert(dims.begin(), s.groups);
      strides.insert(strides.begin(), k * s.r * s.s * c);
    }
    plain = Desc(dims, weight_type, strides);
    const Desc any(dims, weight_type, memory::format_tag::any);
    if (s.bias) bias = Desc({s.k}, memory::data_type::f32, memory::format_tag::x);

    const Dims stride(s.stride.begin(), s.stride.end());
    const Dims padding(s.padding.begin(), s.padding.end());
    const Dims dilation{s.dilation[0] - 1, s.dilation[1] - 1};  // the library counts the gaps
    const dnnl::primitive_attr attr = attributes(false);
    // The gradients ask for a forward descriptor as a hint.
    const auto forward = [&](bool with_bias) {
      using F = dnnl::convolution_forward;
      constexpr auto training = dnnl::prop_kind::forward_training;
      const F::desc d = with_bias ? F::desc(training, direct, x, any, bias, y, stride, dilation, padding, padding)
                                  : F::desc(training, direct, x, any, y, stride, dilation, padding, padding);
      return F::primitive_desc(d, attr, engine());
    };
    if (pass == Pass::forward) {
      const auto d = forward(s.bias);
      weights = d.weights_desc();
      keep(d);
    } else if (pass == Pass::input_gradient) {
      using B = dnnl::convolution_backward_data;
      const B::primitive_desc d(B::desc(direct, x, any, y, stride, dilation, padding, padding), attr, engine(),
                                forward(false));
      weights = d.weights_desc();
      keep(d);
    } else {
      using B = dnnl::convolution_backward_weights;
      const Desc hint(dims, type, memory::format_tag::any);
      using F = dnnl::convolution_forward;
      const F::primitive_desc f(
          F::desc(dnnl::prop_kind::forward_training, direct, x, hint, y, stride, dilation, padding, padding), attr,
          engine());
      const B::primitive_desc d(B::desc(direct, x, any, y, stride, dilation, padding, padding), attr, engine(), f);
      weights = d.diff_weights_desc();
      keep(d);
    }
  }

  void keep(const dnnl::primitive_desc& d) {
    scratchpad = d.scratchpad_desc();
    desc = d;
  }

  dnnl::reorder::primitive_desc reorder(bool to_packed, bool accumulate) const {
    const dnnl::primitive_attr attr = attributes(accumulate);
    return to_packed ? dnnl::reorder::primitive_desc(engine(), plain, engine(), weights, attr)
                     : dnnl::reorder::primitive_desc(engine(), weights, engine(), plain, attr);
  }

  Conv::Bytes bytes() const {
    Conv::Bytes result;
    result.packed = aligned(weights.get_size());
    result.scratch = aligned(scratchpad.get_size());
    const auto of = [&](bool to_packed, bool accumulate) {
      return aligned(reorder(to_packed, accumulate).scratchpad_desc().get_size());
    };
    result.pack_scratch = pass == Pass::weight_gradient ? std::max(of(false, false), of(false, true)) : of(true, false);
    return result;
  }
};

}  // namespace

struct Conv::Impl {
  using Pass = ConvSpec::Pass;
  Pass pass;
  bool bias;
  Operation run, pack, unpack, unpack_add;

  Impl(const ConvSpec& spec, int workers) : pass(spec.pass), bias(spec.bias) {
    const ConvPlan plan(spec);
    const bool forward = pass == Pass::forward;
    const bool dx = pass == Pass::input_gradient;
    std::vector<std::pair<int, Desc>> operands = {
        {dx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, plan.x},
        {pass == Pass::weight_gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, plan.weights},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, plan.y},
        {DNNL_ARG_SCRATCHPAD, plan.scratchpad}};
    if (bias) operands.push_back({DNNL_ARG_BIAS, plan.bias});
    run = Operation(dnnl::primitive(plan.desc.get()), operands, workers);

    const auto reorder = [&](bool to_packed, bool accumulate) {
      const dnnl::reorder::primitive_desc d = plan.reorder(to_packed, accumulate);
      return Operation(dnnl::reorder(d),
                       {{DNNL_ARG_FROM, to_packed ? plan.plain : plan.weights},
                        {DNNL_ARG_TO, to_packed ? plan.weights : plan.plain},
                        {DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()}},
                       1);
    };
    if (pass == Pass::weight_gradient) {
      unpack = reorder(false, false);
      unpack_add = reorder(false, true);
    } else {
      pack = reorder(true, false);
    }
  }
};

Conv::Conv(const ConvSpec& spec, int workers)
    : impl_(guarded("convolution", [&] { return std::make_unique<Impl>(spec, workers); })) {}
Conv::~Conv() = default;
Conv::Conv(Conv&&) noexcept = default;
Conv& Conv::operator=(Conv&&) noexcept = default;

Conv::Bytes Conv::bytes(const ConvSpec& spec) {
  return guarded("convolution", [&] { return ConvPlan(spec).bytes(); });
}

void Conv::pack(const void* weights, void* packed, void* scratch) const {
  impl_->pack.run<3>(0, {weights, packed, scratch});
}

void Conv::unpack(const void* packed, float* weights, bool accumulate, void* scratch) const {
  (accumulate ? impl_->unpack_add : impl_->unpack).run<3>(0, {packed, weights, scratch});
}

void Conv::run(int worker, const void* x, const void* packed, const float* bias, const void* y, void* scratch) const {
  if (impl_->bias)
    impl_->run.run<5>(worker, {x, packed, y, scratch, bias});
  else
    impl_->run.run<4>(worker, {x, packed, y, scratch});
}

}  // namespace trireme::device::cpu
