#include "trireme/device/cuda/convolution.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/device/algorithm_cache.h"
#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/cudnn.h"
#include "trireme/device/cuda/flash.h"
#include "trireme/device/cuda/trial.h"

namespace trireme::device::cuda {
namespace {

using Attributes = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Attributes>;
using Pass = ConvolutionSpec::Pass;
using Knobs = std::unordered_map<fe::KnobType_t, std::int64_t>;

enum Uid : std::int64_t { kX = 1, kW, kY };

constexpr std::int64_t kCandidates = 10;
constexpr int kRuns = 5;
constexpr const char* kProduct = "product";  // instead of one of the library's engines

AlgorithmCache& cache() {
  static AlgorithmCache instance([] {
    std::string name = fmt::format("convolution-{}-{}", gpus().front().name, cudnn_version());
    std::replace(name.begin(), name.end(), ' ', '-');
    return name;
  }());
  return instance;
}

fe::DataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return fe::DataType_t::BFLOAT16;
    case DType::f16: return fe::DataType_t::HALF;
    default: return fe::DataType_t::FLOAT;
  }
}

// An engine of the library and its settings, as "12:3=4:7=1".
std::string to_text(std::int64_t engine, const Knobs& knobs) {
  std::map<std::int64_t, std::int64_t> sorted;
  for (const auto& [knob, value] : knobs) sorted[static_cast<std::int64_t>(knob)] = value;
  std::string text = std::to_string(engine);
  for (const auto& [knob, value] : sorted) text += fmt::format(":{}={}", knob, value);
  return text;
}

std::pair<std::int64_t, Knobs> from_text(const std::string& text) {
  std::istringstream in(text);
  std::int64_t engine = 0;
  in >> engine;
  Knobs knobs;
  std::int64_t knob = 0;
  std::int64_t value = 0;
  for (char colon = 0, equals = 0; in >> colon >> knob >> equals >> value;)
    knobs[static_cast<fe::KnobType_t>(knob)] = value;
  return {engine, knobs};
}

// One graph of one node; its plans are in the order of the library's guess.
class Described {
 public:
  Described(const ConvolutionSpec& spec, std::size_t allowance) : s_(spec) {
    graph_.set_io_data_type(type_of(s_.input))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto options = [&](auto attributes) {
      return attributes.set_pre_padding({s_.padding[0], s_.padding[1]})
          .set_post_padding({s_.padding_after(0), s_.padding_after(1)})
          .set_stride({s_.stride[0], s_.stride[1]})
          .set_dilation({s_.dilation[0], s_.dilation[1]});
    };
    const auto result = [&](const Tensor& tensor, const Attributes& as) {
      tensor->set_output(true)
          .set_uid(as.get_uid())
          .set_dim(as.get_dim())
          .set_stride(as.get_stride())
          .set_data_type(type_of(s_.output));
    };
    switch (s_.pass) {
      case Pass::forward:
        result(graph_.conv_fprop(graph_.tensor(x()), graph_.tensor(w()), options(fe::graph::Conv_fprop_attributes())),
               y());
        break;
      case Pass::input_gradient:
        result(graph_.conv_dgrad(graph_.tensor(y()), graph_.tensor(w()), options(fe::graph::Conv_dgrad_attributes())),
               x());
        break;
      case Pass::weight_gradient:
        result(graph_.conv_wgrad(graph_.tensor(y()), graph_.tensor(x()), options(fe::graph::Conv_wgrad_attributes())),
               w());
        break;
    }
    ready_ = graph_.validate().is_good() && graph_.build_operation_graph(cudnn_handle()).is_good();
    graph_.deselect_workspace_greater_than(static_cast<std::int64_t>(allowance - kCudnnAlignment));
  }

  // All that the library proposes for it; false: nothing.
  bool propose() {
    using Note = fe::NumericalNote_t;
    if (!ready_ || graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad()) return false;
    graph_.deselect_numeric_notes({Note::NONDETERMINISTIC, Note::REDUCED_PRECISION_REDUCTION, Note::FFT, Note::WINOGRAD,
                                   Note::WINOGRAD_TILE_4x4, Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13});
    if (s_.input == DType::f32 && !s_.tf32)
      graph_.deselect_numeric_notes({Note::TENSOR_CORE, Note::DOWN_CONVERT_INPUTS});
    return true;
  }
  std::int64_t proposals() const { return graph_.get_execution_plan_count(); }
  bool build(std::int64_t proposal) { return graph_.build_plan_at_index(proposal).is_good(); }
  std::string text(std::int64_t proposal) const {
    std::int64_t engine = 0;
    Knobs knobs;
    fe_check(graph_.get_engine_and_knobs_at_index(proposal, engine, knobs), "cuDNN's engines");
    return to_text(engine, knobs);
  }

  // The one that was kept; false: the library has it no more.
  bool build(const std::string& kept) {
    const auto [engine, knobs] = from_text(kept);
    return ready_ && graph_.create_execution_plan(engine, knobs).is_good() && build(0);
  }

  // By the plan built last.
  void execute(void* stream, const void* x, const void* w, const void* y, void* workspace) const {
    const auto in = [](const void* p) { return const_cast<void*>(p); };
    std::unordered_map<std::int64_t, void*> tensors = {{kX, in(x)}, {kW, in(w)}, {kY, in(y)}};
    fe_check(graph_.execute(cudnn_handle(stream), tensors, cudnn_scratch(workspace)), "cuDNN's convolution");
  }

 private:
  // The library names dimensions by channels first, whatever lies where.
  Attributes image(Uid uid, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return Attributes().set_uid(uid).set_dim({n, c, h, w}).set_stride({h * w * c, 1, w * c, c});
  }
  Attributes x() const { return image(kX, s_.n, s_.c, s_.h, s_.w); }
  Attributes w() const { return image(kW, s_.k, s_.c / s_.groups, s_.r, s_.s); }
  Attributes y() const { return image(kY, s_.n, s_.k, s_.p, s_.q); }

  ConvolutionSpec s_;
  fe::graph::Graph graph_;
  bool ready_ = false;
};

std::size_t bytes_of(std::int64_t elements, DType dtype) {
  return (static_cast<std::size_t>(elements) * size_of(dtype) + 255) / 256 * 256;
}

}  // namespace

struct Convolution::Impl {
  ConvolutionSpec spec;
  std::size_t allowance = 0;
  std::unique_ptr<Described> library;
  std::unique_ptr<Gemm> product;

  // The library's guess is good enough for what takes no time.
  bool worth_measuring() const { return spec.flops() > 1e9; }

  bool choose(Algorithms& run) {
    std::string choice;
    const std::string key = spec.str();
    if (worth_measuring()) {
      if (const auto known = run.find(cache(), key)) {
        choice = *known;
      } else {
        choice = fastest(run);
        if (!choice.empty()) run.keep(cache(), key, choice);
      }
    }
    if (choice == kProduct) {
      product = std::make_unique<Gemm>(*as_product(spec), &run);
      return true;
    }
    library = std::make_unique<Described>(spec, allowance);
    if (!choice.empty() && library->build(choice)) return true;
    library = std::make_unique<Described>(spec, allowance);
    if (!library->propose()) return false;
    // Some have settings that the frontend cannot ask for by name.
    for (std::int64_t i = 0; i < library->proposals() && !choice.empty(); ++i)
      if (library->text(i) == choice && library->build(i)) return true;
    for (std::int64_t i = 0; i < library->proposals(); ++i)
      if (library->build(i)) return true;
    return false;
  }

  // Of those that give the same bits as the library's first proposal (trial.h). Empty where nothing could be measured.
  std::string fastest(Algorithms& run) {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t total = 0;
    const auto take = [&](std::size_t bytes) { return std::exchange(total, total + bytes); };
    const std::size_t x_bytes = bytes_of(spec.n * spec.h * spec.w * spec.c, DType::f32);
    const std::size_t w_bytes = bytes_of(spec.k * spec.r * spec.s * spec.c, DType::f32);
    const std::size_t y_bytes = bytes_of(spec.n * spec.p * spec.q * spec.k, DType::f32);
    const std::size_t x_at = take(x_bytes);
    const std::size_t w_at = take(w_bytes);
    const std::size_t y_at = take(y_bytes);
    const std::size_t filled = total;
    const auto written = [&]() -> std::pair<std::size_t, std::size_t> {
      switch (spec.pass) {
        case Pass::forward: return {y_at, y_bytes};
        case Pass::input_gradient: return {x_at, x_bytes};
        case Pass::weight_gradient: return {w_at, w_bytes};
      }
      return {};
    }();
    const std::size_t first_at = take(written.second);
    const std::size_t count_at = take(256);
    const std::size_t workspace_at = take(allowance);
    if (total > free_memory() / 2) return {};
    const std::unique_ptr<void, void (*)(void*)> memory(allocate(total), [](void* p) { release(p); });
    auto* const base = static_cast<std::byte*>(memory.get());
    fill_with_noise(base, filled, spec.input);
    const std::unique_ptr<Streams> streams = make_streams({.timestamps = 2});
    SameBits same_bits({{base + written.first, base + first_at, written.second}},
                       reinterpret_cast<unsigned long long*>(base + count_at));

    double least = 0;
    std::string best;
    const auto measure = [&](const std::string& name, auto&& run) {
      try {
        run();
        if (!same_bits.check(*streams)) return;
        streams->timestamp(0);
        for (int i = 0; i < kRuns; ++i) run();
        streams->timestamp(1);
        streams->synchronize();
      } catch (const Error&) {
        return;  // one that the library offers and then refuses
      }
      const double seconds = streams->seconds(0, 1);
      if (least != 0 && seconds >= least) return;
      least = seconds;
      best = name;
    };
    Described described(spec, allowance);
    if (!described.propose()) return best;
    for (std::int64_t i = 0, measured = 0; i < described.proposals() && measured < kCandidates; ++i) {
      if (!described.build(i)) continue;
      ++measured;
      measure(described.text(i), [&] {
        described.execute(streams->native(), base + x_at, base + w_at, base + y_at, base + workspace_at);
      });
    }
    if (const auto gemm = as_product(spec)) {
      product = std::make_unique<Gemm>(*gemm, &run);
      measure(kProduct, [&] { launch(streams->native(), base + x_at, base + w_at, base + y_at, base + workspace_at); });
      product.reset();
    }
    run.note_measured(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return best;
  }

  void launch(void* stream, const void* x, const void* w, const void* y, void* workspace) const {
    if (!product) return library->execute(stream, x, w, y, workspace);
    switch (spec.pass) {
      case Pass::forward: return product->run(stream, x, w, const_cast<void*>(y), workspace);
      case Pass::input_gradient: return product->run(stream, y, w, const_cast<void*>(x), workspace);
      case Pass::weight_gradient: return product->run(stream, y, x, const_cast<void*>(w), workspace);
    }
  }
};

Convolution::Convolution() = default;
Convolution::~Convolution() = default;

std::unique_ptr<Convolution> Convolution::make(const ConvolutionSpec& spec, std::size_t allowance, Algorithms* run) {
  if (cudnn_handle() == nullptr || allowance <= kCudnnAlignment) return nullptr;
  if (spec.pass == Pass::weight_gradient && !spec.evenly_padded()) return nullptr;
  std::unique_ptr<Convolution> made(new Convolution);
  made->impl_ = std::make_unique<Impl>(Impl{spec, allowance, nullptr, nullptr});
  Algorithms none;
  return made->impl_->choose(run == nullptr ? none : *run) ? std::move(made) : nullptr;
}

// Room for both images with their channels padded, as some engines have them, or for parts of the weights' sums.
std::size_t Convolution::workspace(const ConvolutionSpec& s) {
  constexpr std::size_t kMax = std::size_t{384} << 20;
  const auto padded = [](std::int64_t channels) { return (channels + 7) / 8 * 8; };
  const std::size_t images =
      bytes_of(s.n * s.h * s.w * padded(s.c), s.input) + bytes_of(s.n * s.p * s.q * padded(s.k), s.input);
  const std::size_t sums = bytes_of(16 * s.k * s.r * s.s * padded(s.c / s.groups), DType::f32);
  const std::size_t own = std::min(kMax, images + sums + (std::size_t{1} << 20));
  const auto product = as_product(s);
  return product ? std::max(own, Gemm::workspace(*product)) : own;
}

void Convolution::run(void* stream, const void* x, const void* w, const void* y, void* workspace) const {
  impl_->launch(stream, x, w, y, workspace);
}

}  // namespace trireme::device::cuda
