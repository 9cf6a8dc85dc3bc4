#include "trireme/comm/scratch.h"

#include <algorithm>
#include <bit>

#include "trireme/comm/cuts.h"
#include "trireme/comm/threads/state.h"
#include "trireme/comm/tuning.h"

namespace trireme::comm {
namespace {

bool power_of_two(int ranks) { return std::has_single_bit(static_cast<unsigned>(ranks)); }

std::size_t for_all_reduce(Algorithm algorithm, std::size_t bytes, std::size_t element, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t count = bytes / element;
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::native: return 0;
    case Algorithm::sequential:
    case Algorithm::tree: return bytes;
    case Algorithm::parallel: return 2 * bytes;
    case Algorithm::ring: return (count + n - 1) / n * element;
    case Algorithm::recursive: return power_of_two(ranks) ? (count + 1) / 2 * element : bytes;
  }
  return 0;
}

}  // namespace

std::size_t scratch_bytes(TransportKind transport, Algorithm algorithm, std::span<const Segment> segments, DType dtype,
                          int ranks) {
  if (ranks == 1) return 0;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(segments, element);
  if (algorithm == Algorithm::automatic || (algorithm == Algorithm::native && transport == TransportKind::emulated))
    algorithm = choose({}, transport, Collective::all_reduce, bytes, ranks);
  if (algorithm == Algorithm::native && transport == TransportKind::threads) return 0;
  const std::size_t packed = segments.size() > 1 ? scratch_aligned(bytes) : 0;
  return packed + for_all_reduce(algorithm, bytes, element, ranks);
}

std::size_t group_bytes(TransportKind transport, int ranks) {
  if (transport == TransportKind::mpi) return 0;
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t channel =
      n * n * sizeof(threads::Mailbox) + n * (sizeof(threads::Endpoint) + sizeof(threads::Slot) + 2 * threads::kSmall);
  return static_cast<std::size_t>(kChannels) * channel;
}

std::size_t scratch_bytes(TransportKind transport, Collective collective, Algorithm algorithm,
                          std::span<const Cut> cuts, DType dtype, int ranks) {
  TRI_CHECK(collective == Collective::reduce_scatter || collective == Collective::all_gather, "{}",
            name_of(collective));
  if (ranks == 1) return 0;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(cuts, element);
  if (algorithm == Algorithm::automatic || (algorithm == Algorithm::native && transport == TransportKind::emulated))
    algorithm = choose({}, transport, collective, bytes, ranks);
  std::size_t largest = 0;
  for (int r = 0; r < ranks; ++r) largest = std::max(largest, bytes_of(cuts, r, element));
  const bool reducing = collective == Collective::reduce_scatter;
  switch (algorithm) {
    case Algorithm::native:
      if (transport == TransportKind::threads) return 0;
      return scratch_aligned(bytes) + largest;
    case Algorithm::parallel: return reducing ? bytes + 2 * largest : bytes;
    case Algorithm::recursive: return reducing ? 2 * bytes : bytes;
    default: return (reducing ? 3 : 2) * largest;
  }
}

}  // namespace trireme::comm
