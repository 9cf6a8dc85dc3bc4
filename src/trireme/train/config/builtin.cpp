#include <fmt/format.h>

#include <vector>

#include "trireme/train/compile.h"
#include "trireme/train/config.h"

namespace trireme::train {
namespace {

// Two stages of a pipeline, and two of each where there are cores for them.
std::string quickstart() {
  return fmt::format(R"([model]
family  = "llama"
layers  = 4
width   = 128
heads   = 4
context = 128

[data]
text = ["/usr/include/c++"]  # stands for the C++ headers, wherever the compiler keeps them

[train]
steps       = 1200
batch       = 8
micro_batch = 1
lr          = 3e-3
min_lr      = 3e-4
warmup      = 50

[parallel]
{})",
                     compute_threads({}) < 4 ? "mesh = \"pp=2\"\n" : "mesh = \"pp=2,dp=2\"\nzero = 1\n");
}

std::vector<Builtin> builtins() {
  static const std::string first = quickstart();
  return {
      {"quickstart", "a small GPT on the C++ standard library's headers, in about a minute", first},
      {"gpt2-small-cpu", "GPT-2 small (124 M parameters) on a CPU: name your own data.tokens",
       R"([model]
family  = "gpt2"
layers  = 12
width   = 768
heads   = 12
context = 256
vocab   = 50257

[train]
steps       = 100
batch       = 8
micro_batch = 4
lr          = 6e-4
min_lr      = 6e-5
warmup      = 10
)"},
      {"llama-tiny", "a small Llama on the C++ standard library's headers",
       R"([model]
family   = "llama"
layers   = 4
width    = 128
heads    = 4
kv_heads = 2
context  = 128

[data]
text = ["/usr/include/c++"]  # stands for the C++ headers, wherever the compiler keeps them

[train]
steps  = 300
batch  = 32
lr     = 3e-3
min_lr = 3e-4
warmup = 20
)"},
      {"two-layer", "the smallest network: two linear layers, as docs/walkthrough.md follows it",
       R"([model]
family   = "mlp"
layers   = 1
width    = 8
image    = 2
channels = 1
classes  = 3

[data]
images = "synthetic"

[train]
steps     = 20
batch     = 4
lr        = 0.05
optimizer = "sgd"

[runtime]
device  = "cpu"
threads = 1

[output]
checkpoint_every = 0
)"},
      {"mlp", "a multi-layer perceptron on synthetic images",
       R"([model]
family   = "mlp"
layers   = 4
width    = 256
image    = 16
channels = 1
classes  = 10

[data]
images = "synthetic"

[train]
steps = 200
batch = 64
)"},
      {"convnet", "a small convolutional network on synthetic images",
       R"([model]
family   = "convnet"
layers   = 3
width    = 32
image    = 32
channels = 3
classes  = 10

[data]
images = "synthetic"

[train]
steps = 100
batch = 32
)"},
      {"resnet18", "ResNet-18 on synthetic images of CIFAR-10's size",
       R"([model]
family   = "resnet"
layers   = 18
width    = 64
image    = 32
channels = 3
classes  = 10

[data]
images = "synthetic"

[train]
steps        = 100
batch        = 32
optimizer    = "sgd"
lr           = 0.05
momentum     = 0.9
weight_decay = 5e-4
warmup       = 10
)"},
  };
}

}  // namespace

std::span<const Builtin> builtin_configs() {
  static const std::vector<Builtin> all = builtins();
  return all;
}

}  // namespace trireme::train
