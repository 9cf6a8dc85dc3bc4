#include "trireme/train/images_ahead.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::train {
namespace {

// Batches that a loader has at most: those ready or being made, and the one in use.
std::size_t held() { return static_cast<std::size_t>(data::LoaderOptions{}.depth) + 1; }

// What a rank's programs read; nothing: no images, or slices of them.
std::optional<TensorType> images_of(const Compiled& compiled, int rank) {
  const std::vector<ir::Graph>& graphs = compiled.role_of(rank).module.graphs;
  const auto micro = std::find_if(graphs.begin(), graphs.end(), [](const ir::Graph& g) { return g.name == "micro"; });
  if (compiled.image.rank() == 0 || micro == graphs.end()) return std::nullopt;
  const auto images = micro->find_input("images");
  if (!images) return std::nullopt;
  const TensorType& type = micro->type(*images);
  const bool whole = type.shape.elements() == type.shape[0] * compiled.image.elements();
  return whole ? std::optional(type) : std::nullopt;
}

// The copies of the batches that a loader holds.
class Copies {
 public:
  Copies(int gpu, const TensorType& images) : gpu_(gpu), images_(images) {
    for (std::size_t i = 0; i < held(); ++i)
      memory_.emplace_back(device::cuda::allocate(images.bytes()), [](void* p) { device::cuda::release(p); });
  }

  // By the loader's thread. Batches keep their memory, by which their copies are known.
  void make(data::Batch& batch) {
    const std::span<const std::byte> from = images_.dtype == DType::f32
                                                ? std::as_bytes(std::span<const float>(batch.images))
                                                : std::as_bytes(std::span<const std::uint16_t>(batch.narrow_images));
    if (from.size() != images_.bytes()) return;
    if (!streams_) {
      device::cuda::use_gpu(gpu_);
      streams_ = device::make_streams(device::Kind::cuda);
    }
    if (!streams_->reads(from.data())) return;
    const auto known = places_.find(from.data());
    if (known == places_.end() && places_.size() == memory_.size()) return;
    void* const to = known != places_.end() ? known->second : memory_[places_.size()].get();
    places_[from.data()] = to;
    streams_->copy(to, from.data(), from.size());
    streams_->synchronize();
    batch.device_images = static_cast<const std::byte*>(to);
  }

 private:
  int gpu_;
  TensorType images_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  std::map<const std::byte*, void*> places_;
  std::unique_ptr<device::Streams> streams_;
};

}  // namespace

std::size_t images_ahead_bytes(const Config& config, const Compiled& compiled, int first, int ranks) {
  // It has been compiled and never run on a GPU: off unless it is asked for.
  if (std::getenv("TRIREME_IMAGES_AHEAD") == nullptr) return 0;
  if (compiled.device() != device::Kind::cuda || !compiled.synchronous() || ranks != 1 || compiled.micro_batches != 1 ||
      config.memory.limit.count > 0)
    return 0;
  const auto images = images_of(compiled, first);
  return images ? held() * images->bytes() : 0;
}

std::function<void(data::Batch&)> copy_images_ahead(const Config& config, const Compiled& compiled, int first,
                                                    int ranks) {
  if (images_ahead_bytes(config, compiled, first, ranks) == 0) return {};
  const auto gpus = static_cast<int>(device::cuda::gpus().size());
  try {
    return [copies = std::make_shared<Copies>(first % gpus, *images_of(compiled, first))](data::Batch& batch) {
      copies->make(batch);
    };
  } catch (const Error&) {
    return {};  // another program has the memory: the step copies its images itself
  }
}

}  // namespace trireme::train
