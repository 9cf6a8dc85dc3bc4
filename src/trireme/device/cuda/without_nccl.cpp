#include "trireme/core/error.h"
#include "trireme/device/cuda/nccl.h"

// In place of nccl.cpp where NCCL's header is missing, or CUDA.
namespace trireme::device::cuda {

namespace {
[[noreturn]] void missing() { fail("this build has no NCCL: its header was not found"); }
}  // namespace

bool Nccl::available() { return false; }
Nccl::Id Nccl::make_id() { missing(); }
Nccl::Nccl(const Id&, int, int) { missing(); }
Nccl::~Nccl() = default;
void Nccl::begin() const {}
void Nccl::end() const {}
void Nccl::all_reduce(void*, std::int64_t, DType, bool, void*) const {}
void Nccl::reduce_scatter(const void*, void*, std::int64_t, DType, void*) const {}
void Nccl::all_gather(const void*, void*, std::int64_t, DType, void*) const {}
void Nccl::reduce(const void*, void*, std::int64_t, DType, int, void*) const {}
void Nccl::broadcast(const void*, void*, std::int64_t, DType, int, void*) const {}
void Nccl::send(const void*, std::size_t, int, void*) const {}
void Nccl::receive(void*, std::size_t, int, void*) const {}
void Nccl::check() const {}
void Nccl::abandon() noexcept {}

}  // namespace trireme::device::cuda
