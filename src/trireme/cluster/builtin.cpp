#include "trireme/cluster/cluster.h"

// Clusters to start from: nodes of eight GPUs. Peaks are the vendor's data sheets'; the best products, bandwidths and
// bus bandwidths of all-reduce are measurements published in stas00/ml-engineering and NVIDIA's GTC24 talks; latencies
// are NCCL's own constants (tuning.cc, protocol LL128). The share of the peak that long runs sustain, the shares by op
// and what a generation of software adds were fitted to the runs of bench/published_runs.csv and, for Hopper, to our
// own of GPT-2 on an H200 (docs/simulator.md). B200's are as the H100's. Prices are round figures to be replaced by
// one's own.
namespace trireme::cluster {
namespace {

constexpr std::string_view kA100 = R"(name = "a100"
source = "NVIDIA data sheet; stas00/ml-engineering; NCCL tuning.cc"
transport = "nccl"
host_bandwidth = "20GB/s"
step = "200us"
generation = "trireme"

[device]
name = "A100-80G SXM"
kind = "gpu"
memory = "80GB"
memory_bandwidth = "2.04TB/s"
memory_efficiency = 0.85
launch = "5us"
price = 2.0
matmul_efficiency = 0.8      # that long runs sustain; the best product seen does 271 TFLOP/s
units = 108
depth = 128
communication_slowdown = 1.1
flops = { f32 = 19.5e12, tf32 = 156e12, bf16 = 312e12, f16 = 312e12 }
kernels = { attention = 0.69, attention_grad = 0.52, conv2d = 0.5 }
tiles = [
  { rows = 256, columns = 128 },
  { rows = 128, columns = 128, efficiency = 0.95 },
  { rows = 64, columns = 128, efficiency = 0.8 },
  { rows = 64, columns = 64, efficiency = 0.6 },
]

[node]
devices = 8

[inside]                       # NVLink
bandwidth = "300GB/s"
collective_bandwidth = "232GB/s"
latency = "1.9us"
start = "14us"

[network]                      # one NIC per GPU
bandwidth = "24GB/s"
latency = "4us"
start = "14us"
tree_latency = "8.5us"

[host]
bandwidth = "25GB/s"
latency = "10us"

[disk]
bandwidth = "3GB/s"
latency = "100us"

[software.trireme]             # fused kernels, gradients reduced during backward

[software.flash]               # frameworks of 2023 and 2024
compute = 1.15
elementwise = 1.75             # more passes over memory

[software.unfused]             # frameworks of 2021 and 2022: scores in memory
attention = "scores"
forward_passes = 5
backward_passes = 6
compute = 1.15
elementwise = 1.75
overlap_groups = false
)";

constexpr std::string_view kH100 = R"(name = "h100"
source = "NVIDIA data sheet; stas00/ml-engineering; NCCL tuning.cc"
transport = "nccl"
host_bandwidth = "20GB/s"
step = "200us"
generation = "trireme"

[device]
name = "H100 SXM"
kind = "gpu"
memory = "80GB"
memory_bandwidth = "3.35TB/s"
memory_efficiency = 0.85
launch = "4us"
price = 3.0
matmul_efficiency = 0.73      # that long runs sustain; the best product seen does 794 TFLOP/s
units = 132
depth = 128
communication_slowdown = 1.1
flops = { f32 = 67e12, tf32 = 494e12, bf16 = 989e12, f16 = 989e12 }
kernels = { attention = 0.46, attention_grad = 0.4, conv2d = 0.5 }
tiles = [
  { rows = 256, columns = 128 },
  { rows = 128, columns = 128, efficiency = 0.95 },
  { rows = 64, columns = 128, efficiency = 0.8 },
  { rows = 64, columns = 64, efficiency = 0.6 },
]

[node]
devices = 8

[inside]                       # NVLink
bandwidth = "450GB/s"
collective_bandwidth = "370GB/s"
latency = "1.9us"
start = "14us"

[network]                      # one NIC per GPU
bandwidth = "48GB/s"
latency = "4us"
start = "14us"
tree_latency = "8.5us"

[host]
bandwidth = "50GB/s"
latency = "10us"

[disk]
bandwidth = "3GB/s"
latency = "100us"

[software.trireme]             # fused kernels, gradients reduced during backward

[software.flash]               # frameworks of 2023 and 2024
compute = 1.31
elementwise = 1.54             # more passes over memory

[software.unfused]             # frameworks of 2021 and 2022: scores in memory
attention = "scores"
forward_passes = 5
backward_passes = 6
compute = 1.31
elementwise = 1.54
overlap_groups = false
)";

constexpr std::string_view kH200 = R"(name = "h200"
source = "NVIDIA data sheet; stas00/ml-engineering; NCCL tuning.cc"
transport = "nccl"
host_bandwidth = "20GB/s"
step = "200us"
generation = "trireme"

[device]
name = "H200 SXM"
kind = "gpu"
memory = "141GB"
memory_bandwidth = "4.8TB/s"
memory_efficiency = 0.85
launch = "4us"
price = 3.8
matmul_efficiency = 0.73      # that long runs sustain; the best product seen does 794 TFLOP/s
units = 132
depth = 128
communication_slowdown = 1.1
flops = { f32 = 67e12, tf32 = 494e12, bf16 = 989e12, f16 = 989e12 }
kernels = { attention = 0.46, attention_grad = 0.4, conv2d = 0.5 }
tiles = [
  { rows = 256, columns = 128 },
  { rows = 128, columns = 128, efficiency = 0.95 },
  { rows = 64, columns = 128, efficiency = 0.8 },
  { rows = 64, columns = 64, efficiency = 0.6 },
]

[node]
devices = 8

[inside]                       # NVLink
bandwidth = "450GB/s"
collective_bandwidth = "482GB/s"
latency = "1.9us"
start = "14us"

[network]                      # one NIC per GPU
bandwidth = "48GB/s"
latency = "4us"
start = "14us"
tree_latency = "8.5us"

[host]
bandwidth = "50GB/s"
latency = "10us"

[disk]
bandwidth = "3GB/s"
latency = "100us"

[software.trireme]             # fused kernels, gradients reduced during backward

[software.flash]               # frameworks of 2023 and 2024
compute = 1.31
elementwise = 1.54             # more passes over memory

[software.unfused]             # frameworks of 2021 and 2022: scores in memory
attention = "scores"
forward_passes = 5
backward_passes = 6
compute = 1.31
elementwise = 1.54
overlap_groups = false
)";

constexpr std::string_view kB200 = R"(name = "b200"
source = "NVIDIA data sheet; stas00/ml-engineering; NCCL tuning.cc"
transport = "nccl"
host_bandwidth = "20GB/s"
step = "200us"
generation = "trireme"

[device]
name = "B200"
kind = "gpu"
memory = "180GB"
memory_bandwidth = "8TB/s"
memory_efficiency = 0.85
launch = "4us"
price = 5.5
matmul_efficiency = 0.71      # that long runs sustain; the best product seen does 1745 TFLOP/s
units = 148
depth = 128
communication_slowdown = 1.1
flops = { f32 = 75e12, tf32 = 1100e12, bf16 = 2250e12, f16 = 2250e12 }
kernels = { attention = 0.46, attention_grad = 0.4, conv2d = 0.5 }
tiles = [
  { rows = 256, columns = 128 },
  { rows = 128, columns = 128, efficiency = 0.95 },
  { rows = 64, columns = 128, efficiency = 0.8 },
  { rows = 64, columns = 64, efficiency = 0.6 },
]

[node]
devices = 8

[inside]                       # NVLink
bandwidth = "900GB/s"
collective_bandwidth = "846GB/s"
latency = "1.9us"
start = "14us"

[network]                      # one NIC per GPU
bandwidth = "48GB/s"
latency = "4us"
start = "14us"
tree_latency = "8.5us"

[host]
bandwidth = "50GB/s"
latency = "10us"

[disk]
bandwidth = "3GB/s"
latency = "100us"

[software.trireme]             # fused kernels, gradients reduced during backward

[software.flash]               # frameworks of 2023 and 2024
compute = 1.31
elementwise = 1.54             # more passes over memory

[software.unfused]             # frameworks of 2021 and 2022: scores in memory
attention = "scores"
forward_passes = 5
backward_passes = 6
compute = 1.31
elementwise = 1.54
overlap_groups = false
)";

}  // namespace

const std::vector<Builtin>& builtin_clusters() {
  static const std::vector<Builtin> clusters = {{"a100", kA100}, {"h100", kH100}, {"h200", kH200}, {"b200", kB200}};
  return clusters;
}

}  // namespace trireme::cluster
