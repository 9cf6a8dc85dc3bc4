#include "trireme/device/cuda/block_table.cuh"
#include "trireme/device/group_kernel.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/elementwise/cuda_kernels.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kPerBlock = 16384;  // bytes

struct Entry {
  const float* flag;
  const std::byte *a, *b;
  std::byte* y;
  std::int64_t bytes;
  unsigned first_block;
  int unit;  // bytes moved at once: 16, 4 or 1
};

constexpr int kMax = 512;  // tensors in a launch: as parameters of the kernel they need no copy of their own
struct Table {
  int count;
  Entry entries[kMax];
};
static_assert(sizeof(Table) <= 32764);

template <class T>
__device__ __forceinline__ void move(const Entry& e, const std::byte* from) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - e.first_block) * kPerBlock;
  const std::int64_t end = begin + kPerBlock < e.bytes ? begin + kPerBlock : e.bytes;
  for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x * sizeof(T)); i < end;
       i += static_cast<std::int64_t>(kThreads * sizeof(T)))
    *reinterpret_cast<T*>(e.y + i) = *reinterpret_cast<const T*>(from + i);
}

__global__ void select_kernel(const __grid_constant__ Table t) {
  const Entry& e = device::cuda::entry_of_block(t.entries, t.count);
  const std::byte* const from = *e.flag != 0 ? e.a : e.b;
  if (from == e.y) return;
  if (e.unit == 16)
    move<uint4>(e, from);
  else if (e.unit == 4)
    move<unsigned>(e, from);
  else
    move<unsigned char>(e, from);
}

class Select final : public device::GroupKernel {
 public:
  explicit Select(const ir::KernelSpec& spec) : bytes_(static_cast<std::int64_t>(spec.outputs[0].bytes())) {}

  void launch_group(std::span<device::GroupKernel* const> members, std::span<const device::Launch> launches) override {
    Table table{};
    unsigned blocks = 0;
    const auto flush = [&] {
      if (blocks > 0) select_kernel<<<blocks, kThreads, 0, stream_of(launches.front())>>>(table);
      device::cuda::launched("select");
      table.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int64_t bytes = static_cast<const Select&>(*members[i]).bytes_;
      if (bytes == 0) continue;
      if (table.count == kMax) flush();
      const device::Launch& l = launches[i];
      Entry& e = table.entries[table.count++];
      e = {l.in<float>(0), l.in<std::byte>(1), l.in<std::byte>(2), l.out<std::byte>(0), bytes, blocks, 1};
      const std::uintptr_t places = reinterpret_cast<std::uintptr_t>(e.a) | reinterpret_cast<std::uintptr_t>(e.b) |
                                    reinterpret_cast<std::uintptr_t>(e.y) | static_cast<std::uintptr_t>(bytes);
      if (places % 16 == 0)
        e.unit = 16;
      else if (places % 4 == 0)
        e.unit = 4;
      blocks += static_cast<unsigned>(pieces(bytes, kPerBlock));
    }
    flush();
  }

 private:
  std::int64_t bytes_;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_select_cuda(const ir::KernelSpec& spec) {
  return std::make_shared<Select>(spec);
}

}  // namespace trireme::ops
