#include "trireme/runtime/halo.h"

#include <cstring>

#include "trireme/comm/arithmetic.h"
#include "trireme/device/cuda/peers.h"
#include "trireme/ops/collective/halo.h"

namespace trireme::runtime {

HaloMoves::HaloMoves(const program::Instruction& instruction, const Prepared& p, device::Kind device)
    : device_(device),
      dtype_(instruction.inputs.front().type.dtype),
      reduces_(instruction.op->name == ops::kHaloReduce) {
  const ops::Halo halo(instruction.attributes);
  const TensorType& in = instruction.inputs.front().type;
  const TensorType& out = instruction.outputs.front().type;
  outer_ = static_cast<std::size_t>(in.shape.elements(0, halo.dim));
  const std::size_t run =  // bytes of one element of the dimension, at one index of those before it
      static_cast<std::size_t>(in.shape.elements(halo.dim + 1, in.shape.rank())) * size_of(dtype_);
  output_ = static_cast<std::byte*>(p.outputs.front());
  output_bytes_ = out.bytes();

  const ir::Range& from = reduces_ ? halo.needed() : halo.own();
  const ir::Range& to = reduces_ ? halo.own() : halo.needed();
  const auto bytes = [&](std::int64_t rows) { return static_cast<std::size_t>(rows) * run; };
  const auto in_tensor = [&](std::byte* data, const ir::Range& whole, const ir::Range& part) {
    return Block{data + bytes(part.first - whole.first), bytes(whole.size())};
  };
  auto* const input = static_cast<std::byte*>(const_cast<void*>(p.inputs.front()));
  auto* const scratch = static_cast<std::byte*>(p.workspace);
  const auto in_message = [&](std::size_t at, const ir::Range& part) {
    return Block{scratch + at, bytes(part.size())};
  };

  if (const ir::Range own = ir::overlap(from, to); !own.empty())
    before_.push_back({in_tensor(output_, to, own), in_tensor(input, from, own), bytes(own.size())});
  for (const ops::HaloMessages& m : ops::halo_messages(halo, reduces_, run * outer_)) {
    if (!m.out.empty())
      before_.push_back({in_message(m.out_at, m.out), in_tensor(input, from, m.out), bytes(m.out.size())});
    if (!m.in.empty()) after_.push_back({in_tensor(output_, to, m.in), in_message(m.in_at, m.in), bytes(m.in.size())});
    swaps_.push_back(
        {m.peer, {scratch + m.out_at, bytes(m.out.size()) * outer_}, {scratch + m.in_at, bytes(m.in.size()) * outer_}});
  }
}

void HaloMoves::copy(const std::vector<Move>& moves, const comm::DeviceGroup::OnStream& on) const {
  for (const Move& move : moves) on.streams.copy_runs(move.to, move.from, move.bytes, outer_, on.stream);
}

void HaloMoves::add(const Move& move, const comm::DeviceGroup::OnStream& on) const {
  const auto elements = static_cast<std::int64_t>(move.bytes / size_of(dtype_));
  if (device_ != device::Kind::cpu)
    return device::cuda::add_runs(move.to, move.from, elements, static_cast<std::int64_t>(outer_), dtype_,
                                  on.streams.native(on.stream));
  for (std::size_t i = 0; i < outer_; ++i)
    comm::combine(move.to.first + i * move.to.stride, move.from.first + i * move.from.stride, elements, dtype_,
                  comm::Reduce::sum);
}

void HaloMoves::run(comm::DeviceGroup& group, const comm::Options& options,
                    const comm::DeviceGroup::OnStream& on) const {
  if (reduces_ && device_ == device::Kind::cpu) std::memset(output_, 0, output_bytes_);
  if (reduces_ && device_ != device::Kind::cpu)
    device::cuda::zero(output_, output_bytes_, on.streams.native(on.stream));
  copy(before_, on);
  group.exchange(swaps_, options, on);
  if (!reduces_) return copy(after_, on);
  for (const Move& move : after_) add(move, on);
}

}  // namespace trireme::runtime
