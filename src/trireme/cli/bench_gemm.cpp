#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"
#include "trireme/train/compile.h"

// How fast matrices are multiplied, by shape and precision.
namespace trireme::cli {
namespace {

using planner::Product;

struct GemmArguments {
  std::vector<std::string> shapes;
  std::vector<std::string> precisions;
  std::string form = "nt";
  std::string device = "auto";
  int threads = 0;
  bool json = false;
};

// "4096x2304x768": m, n and k.
Product parse_shape(const std::string& text, const std::string& form) {
  Product p;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t* extent : {&p.m, &p.n, &p.k}) {
    const auto [next, error] = std::from_chars(at, end, *extent);
    const bool last = extent == &p.k;
    if (error != std::errc{} || *extent < 1 || (last ? next != end : next == end || *next != 'x'))
      refuse("--shapes: expected MxNxK, three positive numbers such as 4096x2304x768, got \"{}\"", text);
    at = last ? next : next + 1;
  }
  p.trans_a = form[0] == 't';
  p.trans_b = form[1] == 't';
  return p;
}

int bench_gemm(const GemmArguments& a) {
  const device::Kind device = device_named(a.device);
  const bool cpu = device == device::Kind::cpu;
  const int threads = a.threads > 0 ? a.threads : train::compute_threads({});
  std::vector<std::string> shapes = a.shapes;
  if (shapes.empty() && cpu)
    shapes = {"256x256x256", "512x512x512", "1024x1024x1024", "4096x384x384", "4096x1536x384", "4096x384x1536"};
  if (shapes.empty())
    shapes = {"1024x1024x1024", "4096x4096x4096", "8192x8192x8192",  "32768x2304x768",  "32768x768x768",
              "32768x3072x768", "32768x768x3072", "16384x3840x1280", "16384x5120x1280", "16384x1280x5120",
              "8192x4800x1600", "8192x6400x1600", "8192x1600x6400"};
  std::vector<std::string> precisions = a.precisions;
  if (precisions.empty())
    precisions =
        cpu ? std::vector<std::string>{"f32", "bf16"} : std::vector<std::string>{"f32", "tf32", "bf16", "fp16"};
  if (cpu && std::find(precisions.begin(), precisions.end(), "tf32") != precisions.end())
    refuse("--precisions=tf32 is a GPU's; this is the CPU, which has f32, bf16 and fp16");
  std::vector<Product> products;
  products.reserve(shapes.size());
  for (const std::string& shape : shapes) products.push_back(parse_shape(shape, a.form));
  if (!a.json)
    fmt::print("{}, c[m,n] = a·b stored as {}\n{:>18}  {:>5}  {:>10}  {:>9}  of the fastest\n",
               cpu ? fmt::format("{} on {} threads", planner::cpu_name(), threads) : device::cuda::gpus().front().name,
               a.form, "m×n×k", "", "µs", "TFLOP/s");
  for (const std::string& precision : precisions) {
    const bool tf32 = precision == "tf32";
    const DType dtype = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
    struct Row {
      Product product;
      double seconds;
    };
    std::vector<Row> rows;
    double fastest = planner::matmul_flops(dtype, threads, device, tf32);
    for (Product p : products) {
      p.dtype = dtype;
      p.tf32 = tf32;
      rows.push_back({p, planner::product_seconds(p, threads, device)});
      fastest = std::max(fastest, p.flops() / rows.back().seconds);
    }
    for (const auto& [p, seconds] : rows) {
      const double flops = p.flops() / seconds;
      if (a.json)
        fmt::print("{}\n", nlohmann::ordered_json{{"m", p.m},
                                                  {"n", p.n},
                                                  {"k", p.k},
                                                  {"form", a.form},
                                                  {"precision", precision},
                                                  {"device", device::name_of(device)},
                                                  {"us", 1e6 * seconds},
                                                  {"tflops", flops / 1e12},
                                                  {"of_fastest", flops / fastest}}
                               .dump());
      else
        fmt::print("{:>18}  {:>5}  {:>10.1f}  {:>9.3f}  {:.0f}%\n", fmt::format("{}×{}×{}", p.m, p.n, p.k), precision,
                   1e6 * seconds, flops / 1e12, 100 * flops / fastest);
    }
  }
  return 0;
}

}  // namespace

void add_bench_gemm(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<GemmArguments>();
  CLI::App* gemm = bench.add_subcommand("gemm", "Time matrix products by shape and precision");
  gemm->add_option("--shapes", arguments->shapes, "MxNxK,…; by default squares and GPT-2's")->delimiter(',');
  gemm->add_option("--precisions", arguments->precisions, "Precisions: f32, tf32, bf16, fp16")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "fp16"}));
  gemm->add_option("--form", arguments->form, "How a and b are stored: n as they are, t transposed")
      ->check(CLI::IsMember({"nn", "nt", "tn", "tt"}));
  gemm->add_option("--device", arguments->device, "Device")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  gemm->add_option("--threads", arguments->threads, "CPU threads; 0: all cores")->check(CLI::Range(0, 4096));
  gemm->add_flag("--json", arguments->json, "For scripts");
  gemm->footer(
      "\nExamples:\n"
      "  trireme bench gemm\n"
      "  trireme bench gemm --shapes=4096x2304x768,4096x768x2304 --precisions=bf16 --form=tn\n");
  gemm->callback([&context, arguments] { context.run = [arguments] { return bench_gemm(*arguments); }; });
}

}  // namespace trireme::cli
