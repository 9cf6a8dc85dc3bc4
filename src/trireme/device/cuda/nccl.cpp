#include "trireme/device/cuda/nccl.h"

#include <dlfcn.h>
#include <nccl.h>

#include <cstring>

#include "trireme/core/error.h"

namespace trireme::device::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(Nccl::Id));

// The functions that are used, as the library has them.
struct Library {
  void* handle = nullptr;
  decltype(&ncclGetErrorString) error = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRank) init = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGroupStart) begin = nullptr;
  decltype(&ncclGroupEnd) end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;

  Library() {
    handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return;
    find(error, "ncclGetErrorString");
    find(unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRank");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError");
    find(begin, "ncclGroupStart");
    find(end, "ncclGroupEnd");
    find(all_reduce, "ncclAllReduce");
    find(reduce_scatter, "ncclReduceScatter");
    find(all_gather, "ncclAllGather");
    find(reduce, "ncclReduce");
    find(broadcast, "ncclBroadcast");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
  }

 private:
  template <class F>
  void find(F& function, const char* name) {
    void* const symbol = handle == nullptr ? nullptr : dlsym(handle, name);
    if (symbol == nullptr) handle = nullptr;  // not a library that can be used
    std::memcpy(&function, &symbol, sizeof symbol);
  }
};

const Library& library() {
  static const Library opened;
  return opened;
}

const Library& usable() {
  if (library().handle == nullptr) fail("NCCL (libnccl.so.2) is not installed here");
  return library();
}

void check_result(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) fail("NCCL: {}: {}", call, library().error(result));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i8: return ncclInt8;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
    case DType::u16: break;
  }
  fail("NCCL does not know {}", name_of(dtype));
}

ncclComm_t comm(void* p) {
  if (p == nullptr) fail("NCCL: the group was abandoned after a failure");
  return static_cast<ncclComm_t>(p);
}
cudaStream_t on(void* stream) { return static_cast<cudaStream_t>(stream); }
std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

bool Nccl::available() { return library().handle != nullptr; }

Nccl::Id Nccl::make_id() {
  ncclUniqueId unique;
  check_result(usable().unique_id(&unique), "ncclGetUniqueId");
  Id id;
  std::memcpy(id.data(), &unique, id.size());
  return id;
}

Nccl::Nccl(const Id& id, int rank, int ranks) {
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), id.size());
  ncclComm_t made = nullptr;
  check_result(usable().init(&made, ranks, unique, rank), "ncclCommInitRank");
  comm_ = made;
}

Nccl::~Nccl() {
  if (comm_ != nullptr) library().destroy(comm(comm_));
}

void Nccl::begin() const {
  comm(comm_);
  check_result(library().begin(), "ncclGroupStart");
}
void Nccl::end() const { check_result(library().end(), "ncclGroupEnd"); }

void Nccl::all_reduce(void* data, std::int64_t count, DType dtype, bool maximum, void* stream) const {
  check_result(library().all_reduce(data, data, size(count), type_of(dtype), maximum ? ncclMax : ncclSum, comm(comm_),
                                    on(stream)),
               "ncclAllReduce");
}
void Nccl::reduce_scatter(const void* whole, void* slice, std::int64_t slice_count, DType dtype, void* stream) const {
  check_result(
      library().reduce_scatter(whole, slice, size(slice_count), type_of(dtype), ncclSum, comm(comm_), on(stream)),
      "ncclReduceScatter");
}
void Nccl::all_gather(const void* slice, void* whole, std::int64_t slice_count, DType dtype, void* stream) const {
  check_result(library().all_gather(slice, whole, size(slice_count), type_of(dtype), comm(comm_), on(stream)),
               "ncclAllGather");
}
void Nccl::reduce(const void* from, void* to, std::int64_t count, DType dtype, int root, void* stream) const {
  check_result(library().reduce(from, to, size(count), type_of(dtype), ncclSum, root, comm(comm_), on(stream)),
               "ncclReduce");
}
void Nccl::broadcast(const void* from, void* to, std::int64_t count, DType dtype, int root, void* stream) const {
  check_result(library().broadcast(from, to, size(count), type_of(dtype), root, comm(comm_), on(stream)),
               "ncclBroadcast");
}
void Nccl::send(const void* from, std::size_t bytes, int to, void* stream) const {
  check_result(library().send(from, bytes, ncclUint8, to, comm(comm_), on(stream)), "ncclSend");
}
void Nccl::receive(void* to, std::size_t bytes, int from, void* stream) const {
  check_result(library().receive(to, bytes, ncclUint8, from, comm(comm_), on(stream)), "ncclRecv");
}

void Nccl::check() const {
  ncclResult_t state = ncclSuccess;
  check_result(library().async_error(comm(comm_), &state), "ncclCommGetAsyncError");
  if (state != ncclInProgress) check_result(state, "a collective");
}
void Nccl::abandon() noexcept {
  if (comm_ != nullptr) library().abort(static_cast<ncclComm_t>(comm_));
  comm_ = nullptr;
}

}  // namespace trireme::device::cuda
