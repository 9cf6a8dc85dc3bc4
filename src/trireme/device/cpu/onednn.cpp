#include "trireme/device/cpu/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/device/cpu/allowance.h"
#include "trireme/device/cpu/amx.h"
#include "trireme/device/cpu/widened.h"

namespace trireme::device::cpu {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// The library sets up locks of its own when it executes something for the first time; done here, by one thread, no two
// workers can come to it at once.
void execute_once(const dnnl::engine& engine) {
  float from = 0;
  float to = 0;
  const Desc one({1}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
  dnnl::memory source(one, engine, &from);
  dnnl::memory target(one, engine, &to);
  dnnl::stream stream(engine);
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

// Whether the environment asks for an instruction set below those that have AMX.
bool asks_for_less() {
  const char* asked = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (asked == nullptr) asked = std::getenv("DNNL_MAX_CPU_ISA");
  if (asked != nullptr)
    for (const std::string_view lower : {"SSE41", "AVX", "AVX2", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16"})
      if (asked == lower) return true;
  return false;
}

// The AMX bf16 kernels of oneDNN 2.6 end in an illegal instruction on CPUs that have AMX. The cap must come before the
// first primitive; if someone else was earlier, theirs stands. It would take the place of what the environment says, so
// that is left alone where it is lower.
void cap_instruction_set() {
  if (!asks_for_less()) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
}

// One engine for the process: it holds nothing but the choice of the CPU.
const dnnl::engine& engine() {
  static const dnnl::engine instance = [] {
    cap_instruction_set();
    dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    execute_once(cpu);
    return cpu;
  }();
  return instance;
}

bool has(dnnl::cpu_isa wanted) {
  engine();
  static const auto there = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (there & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}
// Whether operands of that type are brought to f32. The library's bf16 products for AVX-512 alone are slower by far,
// and want room for all sums.
bool widens_products(DType dtype) { return dtype == DType::bf16 && !has(dnnl::cpu_isa::avx512_core_bf16); }
// Whether a product is made by tile instructions (amx.h) in place of the library.
bool multiplies_tiles(const GemmSpec& spec) {
  static const bool usable = !asks_for_less() && amx_usable();
  return usable && AmxGemm::takes(spec);
}
bool widens_images(DType dtype) { return dtype == DType::bf16 && !has(dnnl::cpu_isa::avx512_core); }

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

// The library's older products ("gemm:jit": those of AVX2, and few of AVX-512) point the stack pointer at a buffer of
// the heap, and a handler's frame overwrites what lies below it there.
bool moves_stack(const dnnl::primitive& primitive) {
  const_dnnl_primitive_desc_t desc = nullptr;
  const char* name = nullptr;
  if (dnnl_primitive_get_primitive_desc(primitive.get(), &desc) != dnnl_success ||
      dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, static_cast<void*>(&name)) != dnnl_success)
    return true;
  return std::string_view(name).find("gemm:jit") != std::string_view::npos;
}

// Where that is so, a signal waits until the product of one block is made. Faults of the thread's own cannot wait.
class WithoutSignals {
 public:
  explicit WithoutSignals(bool needed) : needed_(needed) {
    if (!needed_) return;
    sigset_t waiting;
    sigfillset(&waiting);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&waiting, fault);
    pthread_sigmask(SIG_BLOCK, &waiting, &before_);
  }
  ~WithoutSignals() {
    if (needed_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  bool needed_;
  sigset_t before_;
};

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return dnnl::memory::data_type::f32;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    default: fail("oneDNN kernels take f32 or bf16, not {}", name_of(dtype));
  }
}

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

// Ranks prepare their kernels at the same time, and oneDNN shares what it has made between them: one after the other.
std::mutex preparing;

template <class F>
auto guarded(const char* what, F&& f) {
  const std::lock_guard lock(preparing);
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
      : primitive_(std::move(primitive)), moves_stack_(moves_stack(primitive_)) {
    calls_.resize(static_cast<std::size_t>(workers));
    for (Call& call : calls_) {
      call.stream = dnnl::stream(engine());
      for (const auto& [argument, desc] : operands) {
        dnnl::memory unbound(desc, engine(), DNNL_MEMORY_NONE);
        call.memories.push_back(std::move(unbound));
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
    const WithoutSignals undisturbed(moves_stack_);
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
  bool moves_stack_ = false;
  std::vector<Call> calls_;
};

Desc matrix(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed, std::int64_t ld) {
  return Desc({rows, columns}, data_type(dtype), transposed ? Dims{1, ld} : Dims{ld, 1});
}

struct GemmPlan {
  // Rows of b that are packed together: a multiple of every block size the library uses.
  static constexpr std::int64_t kPart = 128;

  GemmSpec spec;
  GemmCopies copies;

  explicit GemmPlan(const GemmSpec& s) : spec(s), copies(s) {}

  dnnl::matmul::primitive_desc describe() const {
    return describe(spec.m, spec.packed_b
                                ? packed()
                                : matrix(spec.k, spec.n, spec.input, spec.trans_b, spec.trans_b ? spec.k : spec.n));
  }

  // The library chooses the layout for a typical block of rows; rows as they are take least room.
  Desc packed() const {
    const Desc liked = library_layout();
    if (liked.get_size() <= Gemm::packed_bytes(spec)) return liked;
    return matrix(spec.k, spec.n, spec.input, false, spec.n);
  }
  Desc library_layout() const {
    return describe(64, Desc({spec.k, spec.n}, data_type(spec.input), dnnl::memory::format_tag::any)).weights_desc();
  }

  std::int64_t parts() const { return (spec.k + kPart - 1) / kPart; }

  std::size_t scratch_bytes() const { return copies.bytes() + whole_lines(describe().scratchpad_desc().get_size()); }

 private:
  dnnl::matmul::primitive_desc describe(std::int64_t m, const Desc& b) const {
    const Desc a = matrix(m, spec.k, spec.input, spec.trans_a, spec.trans_a ? m : spec.k);
    const Desc c = matrix(m, spec.n, spec.output, false, spec.n);
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes(spec.accumulate && !copies.c),
                                        engine());
  }
};

// A matrix of `rows` dense rows from one whose rows are `stride` elements apart.
void gather_rows(const void* from, void* to, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                 DType dtype) {
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * size_of(dtype);
  const std::size_t stride_bytes = static_cast<std::size_t>(stride) * size_of(dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i)
    std::memcpy(static_cast<std::byte*>(to) + i * row_bytes, static_cast<const std::byte*>(from) + i * stride_bytes,
                row_bytes);
}

void scatter_rows(const void* from, void* to, const GemmSpec& s) {
  const auto n = static_cast<std::size_t>(s.n);
  const auto ld = static_cast<std::size_t>(s.ldc);
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.m); ++i) {
    if (s.accumulate) {
      const float* source = static_cast<const float*>(from) + i * n;
      float* sum = static_cast<float*>(to) + i * ld;
      for (std::size_t j = 0; j < n; ++j) sum[j] += source[j];
    } else {
      const std::size_t element = size_of(s.output);
      std::memcpy(static_cast<std::byte*>(to) + i * ld * element, static_cast<const std::byte*>(from) + i * n * element,
                  n * element);
    }
  }
}

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

struct Gemm::Impl {
  GemmPlan plan;
  std::vector<OwnLines> own;  // each worker's scratch, where the library wants more than callers give
  Operation product;
  Operation pack, pack_last;  // a part of kPart rows of b, and the shorter one at the end
  std::vector<std::size_t> part_at;

  Impl(const GemmSpec& spec, int workers) : plan(spec) {
    const dnnl::matmul::primitive_desc desc = plan.describe();
    product = Operation(dnnl::matmul(desc),
                        {{DNNL_ARG_SRC, desc.src_desc()},
                         {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                         {DNNL_ARG_DST, desc.dst_desc()},
                         {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
                        workers);
    if (plan.scratch_bytes() > scratch_bytes(spec))
      for (int i = 0; i < workers; ++i) own.push_back(allocate_lines(plan.scratch_bytes()));
    if (!spec.packed_b) return;
    const Desc whole = desc.weights_desc();
    for (std::int64_t row = 0; row < spec.k; row += GemmPlan::kPart) {
      const std::int64_t rows = std::min(GemmPlan::kPart, spec.k - row);
      Desc to = whole.submemory_desc({rows, spec.n}, {row, 0});
      part_at.push_back(static_cast<std::size_t>(to.data.offset0) * size_of(spec.input));
      to.data.offset0 = 0;  // so that one primitive serves all parts
      Operation& operation = rows == GemmPlan::kPart ? pack : pack_last;
      if (operation) continue;
      const Desc from = matrix(rows, spec.n, spec.input, spec.trans_b, spec.ldb);
      const dnnl::reorder::primitive_desc reorder(engine(), from, engine(), to, attributes(false));
      TRI_CHECK(reorder.scratchpad_desc().get_size() == 0, "packing a matrix wants scratch");
      operation = Operation(dnnl::reorder(reorder), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, workers);
    }
  }

  void run_pack(int worker, std::int64_t part, const void* b, void* packed) const {
    const GemmSpec& s = plan.spec;
    const std::int64_t row = part * GemmPlan::kPart;
    const std::int64_t from = s.trans_b ? row : row * s.ldb;
    const bool full = row + GemmPlan::kPart <= s.k;
    (full ? pack : pack_last)
        .run<2>(worker, {static_cast<const std::byte*>(b) + static_cast<std::size_t>(from) * size_of(s.input),
                         static_cast<std::byte*>(packed) + part_at[static_cast<std::size_t>(part)]});
  }

  void run(int worker, const void* a, const void* b, void* c, void* scratch) const {
    const GemmSpec& s = plan.spec;
    const GemmCopies& copies = plan.copies;
    if (!own.empty()) scratch = own[static_cast<std::size_t>(worker)].get();
    auto* const room_a = static_cast<std::byte*>(scratch);
    auto* const room_b = room_a + copies.a_bytes;
    auto* const room_c = room_b + copies.b_bytes;
    auto* const pad = room_c + copies.c_bytes;
    if (copies.a) {
      gather_rows(a, room_a, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.input);
      a = room_a;
    }
    if (copies.b) {
      gather_rows(b, room_b, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.input);
      b = room_b;
    }
    product.run<4>(worker, {a, b, copies.c ? room_c : c, pad});
    if (copies.c) scatter_rows(room_c, c, s);
  }
};

Gemm::Gemm(const GemmSpec& spec, int workers) {
  if (multiplies_tiles(spec))
    amx_ = std::make_unique<AmxGemm>(spec);
  else if (widens_products(spec.input))
    widened_ = std::make_unique<WidenedGemm>(spec, workers);
  else
    impl_ = guarded("gemm", [&] { return std::make_unique<Impl>(spec, workers); });
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

Gemm::Wanted Gemm::wanted(const GemmSpec& spec) {
  if (multiplies_tiles(spec)) return {AmxGemm::scratch_bytes(spec), spec.packed_b ? AmxGemm::packed_bytes(spec) : 0};
  if (widens_products(spec.input)) return {WidenedGemm::scratch_bytes(spec), WidenedGemm::packed_bytes(spec)};
  return guarded("gemm", [&] {
    const GemmPlan plan(spec);
    return Wanted{plan.scratch_bytes(), spec.packed_b ? whole_lines(plan.library_layout().get_size()) : 0};
  });
}

std::int64_t Gemm::parts() const {
  if (amx_) return amx_->parts();
  return widened_ ? widened_->parts() : impl_->plan.parts();
}

void Gemm::pack(int worker, std::int64_t part, const void* b, void* packed) const {
  if (amx_) return amx_->pack(part, b, packed);
  if (widened_) return widened_->pack(part, b, packed);
  impl_->run_pack(worker, part, b, packed);
}

void Gemm::run(int worker, const void* a, const void* b, void* c, void* scratch) const {
  if (amx_) return amx_->run(a, b, c, scratch);
  if (widened_) return widened_->run(worker, a, b, c, scratch);
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
    const auto type = data_type(s.dtype);
    const auto weight_type = pass == Pass::weight_gradient ? dnnl::memory::data_type::f32 : type;
    const std::int64_t c = s.c / s.groups;
    const std::int64_t k = s.k / s.groups;
    Dims dims{k, c, s.r, s.s};
    Dims strides{s.r * s.s * c, 1, s.s * c, c};
    if (s.groups > 1) {
      dims.insert(dims.begin(), s.groups);
      strides.insert(strides.begin(), k * s.r * s.s * c);
    }
    plain = Desc(dims, weight_type, strides);
    if (s.bias) bias = Desc({s.k}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x);
    weights = Desc(dims, weight_type, dnnl::memory::format_tag::any);
    if (s.layout_n != 0 && s.layout_n != s.n) describe(s, s.layout_n);
    describe(s, s.n);
  }

  // Fills in everything for n images, with `weights` as they are or as the library likes them.
  void describe(const ConvSpec& s, std::int64_t n) {
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    x = Desc({n, s.c, s.h, s.w}, data_type(s.dtype), dnnl::memory::format_tag::nhwc);
    y = Desc({n, s.k, s.p, s.q}, data_type(s.dtype), dnnl::memory::format_tag::nhwc);
    const Dims stride(s.stride.begin(), s.stride.end());
    const Dims padding(s.padding.begin(), s.padding.end());
    const Dims after(s.padding_after.begin(), s.padding_after.end());
    const Dims dilation{s.dilation[0] - 1, s.dilation[1] - 1};  // the library counts the gaps
    const dnnl::primitive_attr attr = attributes(false);
    const auto forward = [&](const Desc& w) {
      using F = dnnl::convolution_forward;
      constexpr auto training = dnnl::prop_kind::forward_training;
      const F::desc d = s.bias ? F::desc(training, direct, x, w, bias, y, stride, dilation, padding, after)
                               : F::desc(training, direct, x, w, y, stride, dilation, padding, after);
      return F::primitive_desc(d, attr, engine());
    };
    // The gradients ask for a forward descriptor as a hint.
    const auto hint = [&] {
      const Dims dims = plain.dims();
      return forward(Desc(dims, data_type(s.dtype), dnnl::memory::format_tag::any));
    };
    if (pass == Pass::forward) {
      const auto d = forward(weights);
      weights = d.weights_desc();
      keep(d);
    } else if (pass == Pass::input_gradient) {
      using B = dnnl::convolution_backward_data;
      const B::primitive_desc d(B::desc(direct, x, weights, y, stride, dilation, padding, after), attr, engine(),
                                hint());
      weights = d.weights_desc();
      keep(d);
    } else {
      using B = dnnl::convolution_backward_weights;
      const B::primitive_desc d(B::desc(direct, x, weights, y, stride, dilation, padding, after), attr, engine(),
                                hint());
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
    result.packed = whole_lines(weights.get_size());
    result.scratch = whole_lines(scratchpad.get_size());
    const auto of = [&](bool to_packed, bool accumulate) {
      return whole_lines(reorder(to_packed, accumulate).scratchpad_desc().get_size());
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
    if (bias) operands.emplace_back(DNNL_ARG_BIAS, plan.bias);
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

Conv::Conv(const ConvSpec& spec, int workers) {
  if (widens_images(spec.dtype))
    widened_ = std::make_unique<WidenedConv>(spec, workers);
  else
    impl_ = guarded("convolution", [&] { return std::make_unique<Impl>(spec, workers); });
}
Conv::~Conv() = default;
Conv::Conv(Conv&&) noexcept = default;
Conv& Conv::operator=(Conv&&) noexcept = default;

Conv::Bytes Conv::wanted(const ConvSpec& spec) {
  if (widens_images(spec.dtype)) {
    ConvSpec wide = spec;
    wide.dtype = DType::f32;
    Bytes bytes = wanted(wide);
    const Bytes copies = WidenedConv::copies(spec);
    bytes.scratch += copies.scratch;
    bytes.pack_scratch += copies.pack_scratch;
    return bytes;
  }
  return guarded("convolution", [&] { return ConvPlan(spec).bytes(); });
}

void Conv::pack(const void* weights, void* packed, void* scratch) const {
  if (widened_) return widened_->pack(weights, packed, scratch);
  impl_->pack.run<3>(0, {weights, packed, scratch});
}

void Conv::unpack(const void* packed, float* weights, bool accumulate, void* scratch) const {
  if (widened_) return widened_->unpack(packed, weights, accumulate, scratch);
  (accumulate ? impl_->unpack_add : impl_->unpack).run<3>(0, {packed, weights, scratch});
}

void Conv::run(int worker, const void* x, const void* packed, const float* bias, const void* y, void* scratch) const {
  if (widened_) return widened_->run(worker, x, packed, bias, y, scratch);
  if (impl_->bias)
    impl_->run.run<5>(worker, {x, packed, y, scratch, bias});
  else
    impl_->run.run<4>(worker, {x, packed, y, scratch});
}

}  // namespace trireme::device::cpu
