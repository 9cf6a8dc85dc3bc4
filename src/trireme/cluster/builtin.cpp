#include <fmt/format.h>

#include <array>

#include "trireme/cluster/cluster.h"

// Clusters to start from: nodes of eight GPUs. Peaks are the vendor's data sheets'; the best products, bandwidths and
// bus bandwidths of all-reduce are measurements published in stas00/ml-engineering and NVIDIA's GTC24 talks; latencies
// are NCCL's own constants (tuning.cc, protocol LL128). The share of the peak that long runs sustain, the shares by op
// and what a generation of software adds were fitted to the runs of bench/published_runs.csv and, for Hopper, to our
// own of GPT-2 on an H200 (docs/simulator.md). B200's are as the H100's. Prices are round figures to be replaced by
// one's own.
namespace trireme::cluster {
namespace {

// What differs between the generations of GPUs. Sizes and bandwidths as a description writes them.
struct Gpu {
  std::string_view name;
  std::string_view device;
  std::string_view memory;
  std::string_view memory_bandwidth;
  std::string_view launch;
  double price = 0;      // dollars per hour
  double matmul = 0;     // share of the peak that long runs sustain
  int best_product = 0;  // TFLOP/s
  int units = 0;
  double f32 = 0, tf32 = 0, bf16 = 0;                     // peaks, TFLOP/s
  double attention = 0, attention_grad = 0;               // shares of the peak
  std::string_view inside, bus, network, host;            // NVLink one way, all-reduce's bus bandwidth, NIC, PCIe
  double software_compute = 1, software_elementwise = 1;  // of the frameworks of 2021 to 2024
};

constexpr std::array<Gpu, 4> kGpus = {{
    {.name = "a100",
     .device = "A100-80G SXM",
     .memory = "80GB",
     .memory_bandwidth = "2.04TB/s",
     .launch = "5us",
     .price = 2.0,
     .matmul = 0.8,
     .best_product = 271,
     .units = 108,
     .f32 = 19.5,
     .tf32 = 156,
     .bf16 = 312,
     .attention = 0.69,
     .attention_grad = 0.52,
     .inside = "300GB/s",
     .bus = "232GB/s",
     .network = "24GB/s",
     .host = "25GB/s",
     .software_compute = 1.15,
     .software_elementwise = 1.75},
    {.name = "h100",
     .device = "H100 SXM",
     .memory = "80GB",
     .memory_bandwidth = "3.35TB/s",
     .launch = "4us",
     .price = 3.0,
     .matmul = 0.73,
     .best_product = 794,
     .units = 132,
     .f32 = 67,
     .tf32 = 494,
     .bf16 = 989,
     .attention = 0.46,
     .attention_grad = 0.4,
     .inside = "450GB/s",
     .bus = "370GB/s",
     .network = "48GB/s",
     .host = "50GB/s",
     .software_compute = 1.31,
     .software_elementwise = 1.54},
    {.name = "h200",
     .device = "H200 SXM",
     .memory = "141GB",
     .memory_bandwidth = "4.8TB/s",
     .launch = "4us",
     .price = 3.8,
     .matmul = 0.73,
     .best_product = 794,
     .units = 132,
     .f32 = 67,
     .tf32 = 494,
     .bf16 = 989,
     .attention = 0.46,
     .attention_grad = 0.4,
     .inside = "450GB/s",
     .bus = "482GB/s",
     .network = "48GB/s",
     .host = "50GB/s",
     .software_compute = 1.31,
     .software_elementwise = 1.54},
    {.name = "b200",
     .device = "B200",
     .memory = "180GB",
     .memory_bandwidth = "8TB/s",
     .launch = "4us",
     .price = 5.5,
     .matmul = 0.71,
     .best_product = 1745,
     .units = 148,
     .f32 = 75,
     .tf32 = 1100,
     .bf16 = 2250,
     .attention = 0.46,
     .attention_grad = 0.4,
     .inside = "900GB/s",
     .bus = "846GB/s",
     .network = "48GB/s",
     .host = "50GB/s",
     .software_compute = 1.31,
     .software_elementwise = 1.54},
}};

constexpr std::string_view kNodeOfEight = R"(name = "{name}"
source = "NVIDIA data sheet; stas00/ml-engineering; NCCL tuning.cc"
transport = "nccl"
host_bandwidth = "20GB/s"
step = "200us"
generation = "trireme"

[device]
name = "{device}"
kind = "gpu"
memory = "{memory}"
memory_bandwidth = "{memory_bandwidth}"
memory_efficiency = 0.85
launch = "{launch}"
price = {price}
matmul_efficiency = {matmul}      # that long runs sustain; the best product seen does {best_product} TFLOP/s
units = {units}
depth = 128
communication_slowdown = 1.1
flops = {{ f32 = {f32}e12, tf32 = {tf32}e12, bf16 = {bf16}e12, f16 = {bf16}e12 }}
kernels = {{ attention = {attention}, attention_grad = {attention_grad}, conv2d = 0.5 }}
tiles = [
  {{ rows = 256, columns = 128 }},
  {{ rows = 128, columns = 128, efficiency = 0.95 }},
  {{ rows = 64, columns = 128, efficiency = 0.8 }},
  {{ rows = 64, columns = 64, efficiency = 0.6 }},
]

[node]
devices = 8

[inside]                       # NVLink
bandwidth = "{inside}"
collective_bandwidth = "{bus}"
latency = "1.9us"
start = "14us"

[network]                      # one NIC per GPU
bandwidth = "{network}"
latency = "4us"
start = "14us"
tree_latency = "8.5us"

[host]
bandwidth = "{host}"
latency = "10us"

[disk]
bandwidth = "3GB/s"
latency = "100us"

[software.trireme]             # fused kernels, gradients reduced during backward

[software.flash]               # frameworks of 2023 and 2024
captures = false
compute = {software_compute}
elementwise = {software_elementwise}             # more passes over memory

[software.unfused]             # frameworks of 2021 and 2022: scores in memory
attention = "scores"
forward_passes = 5
backward_passes = 6
compute = {software_compute}
elementwise = {software_elementwise}
overlap_groups = false
captures = false
)";

std::string described(const Gpu& g) {
  return fmt::format(
      fmt::runtime(kNodeOfEight), fmt::arg("name", g.name), fmt::arg("device", g.device), fmt::arg("memory", g.memory),
      fmt::arg("memory_bandwidth", g.memory_bandwidth), fmt::arg("launch", g.launch), fmt::arg("price", g.price),
      fmt::arg("matmul", g.matmul), fmt::arg("best_product", g.best_product), fmt::arg("units", g.units),
      fmt::arg("f32", g.f32), fmt::arg("tf32", g.tf32), fmt::arg("bf16", g.bf16), fmt::arg("attention", g.attention),
      fmt::arg("attention_grad", g.attention_grad), fmt::arg("inside", g.inside), fmt::arg("bus", g.bus),
      fmt::arg("network", g.network), fmt::arg("host", g.host), fmt::arg("software_compute", g.software_compute),
      fmt::arg("software_elementwise", g.software_elementwise));
}

}  // namespace

const std::vector<Builtin>& builtin_clusters() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (const Gpu& gpu : kGpus) all.push_back(described(gpu));
    return all;
  }();
  static const std::vector<Builtin> clusters = [] {
    std::vector<Builtin> all;
    for (std::size_t i = 0; i < kGpus.size(); ++i) all.push_back({kGpus[i].name, texts[i]});
    return all;
  }();
  return clusters;
}

}  // namespace trireme::cluster
