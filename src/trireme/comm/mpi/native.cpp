#include <climits>

#include "trireme/comm/arithmetic.h"
#include "trireme/comm/cuts.h"
#include "trireme/comm/mpi/impl.h"
#include "trireme/comm/scratch.h"

// MPI's own collectives. What they move is MPI's secret; counted is the least that any algorithm can.
namespace trireme::comm::mpi {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::f16:
    case DType::bf16:
    case DType::u16: return MPI_UINT16_T;
    case DType::i8: return MPI_INT8_T;
    case DType::u8: return MPI_UINT8_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: break;
  }
  return MPI_INT64_T;
}

template <DType kDType, Reduce kReduce>
void combine_for_mpi(void* from, void* into, int* count, MPI_Datatype*) {
  combine(into, from, *count, kDType, kReduce);
}

template <DType kDType, Reduce kReduce>
MPI_Op own_op() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    check_mpi(MPI_Op_create(&combine_for_mpi<kDType, kReduce>, 1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

template <DType kDType>
MPI_Op own_op(Reduce reduce) {
  switch (reduce) {
    case Reduce::sum:
    case Reduce::mean: return own_op<kDType, Reduce::sum>();
    case Reduce::max: return own_op<kDType, Reduce::max>();
    case Reduce::min: return own_op<kDType, Reduce::min>();
    case Reduce::prod: break;
  }
  return own_op<kDType, Reduce::prod>();
}

// MPI knows no 16-bit floats, and its max and min may lose a NaN.
MPI_Op op_of(DType dtype, Reduce reduce) {
  if (dtype == DType::f16) return own_op<DType::f16>(reduce);
  if (dtype == DType::bf16) return own_op<DType::bf16>(reduce);
  const bool extreme = reduce == Reduce::max || reduce == Reduce::min;
  if (dtype == DType::f32 && extreme) return own_op<DType::f32>(reduce);
  if (dtype == DType::f64 && extreme) return own_op<DType::f64>(reduce);
  switch (reduce) {
    case Reduce::sum:
    case Reduce::mean: return MPI_SUM;
    case Reduce::max: return MPI_MAX;
    case Reduce::min: return MPI_MIN;
    case Reduce::prod: break;
  }
  return MPI_PROD;
}

}  // namespace

bool MpiTransport::barrier(Channel which, const Call& call, Counters& counters) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(channel(which).comm, &request), "MPI_Ibarrier");
  await(request, call);
  ++counters.steps;
  return true;
}

bool MpiTransport::all_reduce(Channel which, std::span<const Segment> segments, DType dtype, Reduce reduce,
                              const Call& call, Counters& counters) {
  TRI_CHECK(segments.size() == 1, "buckets come packed");
  const Segment& s = segments[0];
  if (s.count > INT_MAX) fail("an all-reduce of {} elements: MPI counts no further than {}", s.count, INT_MAX);
  const auto count = static_cast<int>(s.count);
  if (session_->blocking_native) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, s.data, count, type_of(dtype), op_of(dtype, reduce), channel(which).comm),
              "MPI_Allreduce");
  } else {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, s.data, count, type_of(dtype), op_of(dtype, reduce), channel(which).comm,
                             &request),
              "MPI_Iallreduce");
    await(request, call);
  }
  comm::finish(s.data, s.count, dtype, reduce, size_);
  const std::uint64_t moved = 2 * static_cast<std::uint64_t>(s.count) * size_of(dtype) *
                              static_cast<std::uint64_t>(size_ - 1) / static_cast<std::uint64_t>(size_);
  counters.steps += 1;
  counters.sent += moved;
  counters.received += moved;
  return true;
}

bool MpiTransport::reduce_scatter(Channel which, std::span<const Cut> cuts, DType dtype, Reduce reduce,
                                  std::span<std::byte> scratch, const Call& call, Counters& counters) {
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(cuts, element);
  if (bytes / element > INT_MAX) fail("a reduce-scatter of {} bytes: MPI counts no further", bytes);
  ChannelState& state = channel(which);
  std::byte* to = scratch.data();
  for (int r = 0; r < size_; ++r) {
    state.counts[static_cast<std::size_t>(r)] = static_cast<int>(bytes_of(cuts, r, element) / element);
    to = pack_wholes(cuts, r, element, to);
  }
  std::byte* const mine = scratch.data() + scratch_aligned(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ireduce_scatter(scratch.data(), mine, state.counts.data(), type_of(dtype), op_of(dtype, reduce),
                                state.comm, &request),
            "MPI_Ireduce_scatter");
  await(request, call);
  comm::finish(mine, state.counts[static_cast<std::size_t>(rank_)], dtype, reduce, size_);
  unpack_slices(cuts, rank_, element, mine);
  const std::size_t own = bytes_of(cuts, rank_, element);
  counters.steps += 1;
  counters.sent += bytes - own;
  counters.received += static_cast<std::uint64_t>(size_ - 1) * own;
  return true;
}

bool MpiTransport::all_gather(Channel which, std::span<const Cut> cuts, DType dtype, std::span<std::byte> scratch,
                              const Call& call, Counters& counters) {
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(cuts, element);
  if (bytes / element > INT_MAX) fail("an all-gather of {} bytes: MPI counts no further", bytes);
  ChannelState& state = channel(which);
  int offset = 0;
  for (int r = 0; r < size_; ++r) {
    const auto count = static_cast<int>(bytes_of(cuts, r, element) / element);
    state.counts[static_cast<std::size_t>(r)] = count;
    state.offsets[static_cast<std::size_t>(r)] = offset;
    offset += count;
  }
  const auto own_offset = static_cast<std::size_t>(state.offsets[static_cast<std::size_t>(rank_)]) * element;
  pack_slices(cuts, rank_, element, scratch.data() + own_offset);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, scratch.data(), state.counts.data(),
                            state.offsets.data(), type_of(dtype), state.comm, &request),
            "MPI_Iallgatherv");
  await(request, call);
  const std::byte* from = scratch.data();
  for (int r = 0; r < size_; ++r) from = unpack_wholes(cuts, r, element, from);
  const std::size_t own = bytes_of(cuts, rank_, element);
  counters.steps += 1;
  counters.sent += static_cast<std::uint64_t>(size_ - 1) * own;
  counters.received += bytes - own;
  return true;
}

}  // namespace trireme::comm::mpi
