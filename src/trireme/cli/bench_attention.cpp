#include <nlohmann/json.hpp>

#include <charconv>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"
#include "trireme/train/compile.h"

// How fast attention and its gradient are, by shape.
namespace trireme::cli {
namespace {

struct AttentionArguments {
  std::vector<std::string> shapes;
  std::string precision = "bf16";
  std::string device = "auto";
  bool full = false;
  int threads = 0;
  bool json = false;
};

struct Extents {
  std::int64_t batch, rows, heads, kv_heads, dim;
};

// "2x8192x16x8x128": batch, rows, heads, key-value heads and features of a head.
Extents parse_extents(const std::string& text) {
  Extents e{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t* extent : {&e.batch, &e.rows, &e.heads, &e.kv_heads, &e.dim}) {
    const auto [next, error] = std::from_chars(at, end, *extent);
    const bool last = extent == &e.dim;
    if (error != std::errc{} || *extent < 1 || (last ? next != end : next == end || *next != 'x'))
      refuse("--shapes: expected BATCHxROWSxHEADSxKVHEADSxDIM, such as 2x8192x16x8x128, got \"{}\"", text);
    at = last ? next : next + 1;
  }
  if (e.kv_heads < 1 || e.heads % e.kv_heads != 0)
    refuse("--shapes: {} heads of \"{}\" are no multiple of {}", e.heads, text, e.kv_heads);
  return e;
}

int bench_attention(const AttentionArguments& a) {
  const device::Kind device = device_named(a.device);
  const bool cpu = device == device::Kind::cpu;
  const int threads = a.threads > 0 ? a.threads : train::compute_threads({});
  const DType dtype = a.precision == "bf16" ? DType::bf16 : a.precision == "fp16" ? DType::f16 : DType::f32;
  std::vector<std::string> shapes = a.shapes;
  if (shapes.empty() && cpu) shapes = {"4x256x6x6x64", "1x1024x12x12x64"};
  if (shapes.empty())
    shapes = {"32x1024x12x12x64", "16x1024x20x20x64", "8x1024x25x25x64", "8x2048x16x8x128", "4x4096x16x8x128",
              "2x8192x16x8x128",  "1x32768x16x8x128", "4x4096x16x8x96",  "4x4096x8x4x256"};
  if (!a.json)
    fmt::print("{}, {}, {}\n{:>20}  {:>10}  {:>9}  {:>12}  {:>9}\n",
               cpu ? fmt::format("{} on {} threads", planner::cpu_name(), threads) : device::cuda::gpus().front().name,
               a.precision, a.full ? "full" : "causal", "b×rows×heads×kv×dim", "forward µs", "TFLOP/s", "gradient µs",
               "TFLOP/s");
  for (const std::string& shape : shapes) {
    const Extents e = parse_extents(shape);
    const TensorType q{dtype, {e.batch, e.rows, e.heads, e.dim}}, kv{dtype, {e.batch, e.rows, e.kv_heads, e.dim}};
    const TensorType lse{DType::f32, {e.batch, e.heads, e.rows}};
    const TensorType none = TensorType::none();  // no documents
    const ir::Attributes attributes{{"causal", !a.full}};
    const double forward = planner::op_seconds("attention", {q, kv, kv, none}, attributes, threads, device);
    const double gradient =
        planner::op_seconds("attention_grad", {q, kv, kv, q, lse, q, none}, attributes, threads, device);
    // Of one product of queries and keys; a causal mask leaves half of it.
    const double product = (a.full ? 2.0 : 1.0) * static_cast<double>(e.batch * e.heads * e.dim) *
                           static_cast<double>(e.rows) * static_cast<double>(e.rows);
    if (a.json)
      fmt::print("{}\n", nlohmann::ordered_json{{"shape", shape},
                                                {"precision", a.precision},
                                                {"causal", !a.full},
                                                {"device", device::name_of(device)},
                                                {"forward_us", 1e6 * forward},
                                                {"forward_tflops", 2 * product / forward / 1e12},
                                                {"gradient_us", 1e6 * gradient},
                                                {"gradient_tflops", 5 * product / gradient / 1e12}}
                             .dump());
    else
      fmt::print("{:>20}  {:>10.1f}  {:>9.3f}  {:>12.1f}  {:>9.3f}\n", shape, 1e6 * forward,
                 2 * product / forward / 1e12, 1e6 * gradient, 5 * product / gradient / 1e12);
  }
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<AttentionArguments>();
  CLI::App* command = bench.add_subcommand("attention", "Time attention and its gradient by shape");
  command->add_option("--shapes", arguments->shapes, "BATCHxROWSxHEADSxKVHEADSxDIM,…; by default GPT-2's and a Llama's")
      ->delimiter(',');
  command->add_option("--precision", arguments->precision, "Precision of the operands")
      ->check(CLI::IsMember({"f32", "bf16", "fp16"}));
  command->add_option("--device", arguments->device, "Device")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--threads", arguments->threads, "CPU threads; 0: all cores")->check(CLI::Range(0, 4096));
  command->add_flag("--full", arguments->full, "Without a causal mask");
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n  trireme bench attention\n  trireme bench attention --shapes=2x8192x16x8x128 --full\n");
  command->callback([&context, arguments] { context.run = [arguments] { return bench_attention(*arguments); }; });
}

}  // namespace trireme::cli
