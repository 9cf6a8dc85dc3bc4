#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/peers.h"

namespace trireme::device::cuda {
namespace {

[[noreturn]] void missing() { fail("this build has no CUDA: configure with -D TRIREME_CUDA=ON (preset cuda)"); }

}  // namespace

bool built() { return false; }
std::vector<Gpu> gpus() { return {}; }
std::string versions() { return {}; }
std::size_t free_memory() { missing(); }
std::size_t used_memory() { missing(); }
void* allocate(std::size_t) { missing(); }
void release(void*) noexcept {}
void fill(void*, std::byte, std::size_t) { missing(); }
void to_host(void*, const void*, std::size_t) { missing(); }
void to_device(void*, const void*, std::size_t) { missing(); }
void* allocate_host(std::size_t) { missing(); }
void release_host(void*, std::size_t) noexcept {}
std::unique_ptr<Streams> make_streams(const StreamShape&) { missing(); }

void use_gpu(int) { missing(); }
void combine(const Peers&, std::int64_t, DType, bool, void*) { missing(); }
void add_runs(const Streams::Runs&, const Streams::Runs&, std::int64_t, std::int64_t, DType, void*) { missing(); }
void zero(void*, std::size_t, void*) { missing(); }

}  // namespace trireme::device::cuda
