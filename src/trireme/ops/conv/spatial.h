#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/ir/partition.h"
#include "trireme/ir/slice.h"
#include "trireme/ops/conv/problem.h"

// Convolutions and poolings of images whose height or width is sharded (ir::spatial_shard), as their outputs' are. Each
// rank makes its own rows of what comes out, from its rows of what goes in and a halo of its neighbours'.
//
//   x       0 1 2 3 | 4 5 6 | 7 8 9      kernel 3, stride 1, padding 1
//   reads   0 1 2 3 4                    rank 0: padding 1 above
//                 3   4 5 6   7
//                         6   7 8 9      rank 2: padding 1 below
namespace trireme::ops {

// A window that slides along one dimension which `parts` ranks share: who has, makes, reads and reaches what.
struct SlidingWindow {
  std::int64_t extent = 0;     // of the image
  std::int64_t positions = 0;  // of the window: the extent of what comes out
  std::int64_t reach = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  int parts = 1;

  ir::Range pixels(int place) const { return ir::spatial_shard(extent, parts, place); }
  ir::Range windows(int place) const { return ir::spatial_shard(positions, parts, place); }
  // Pixels of the image under some windows; under those of a rank.
  ir::Range read(const ir::Range& made) const;
  ir::Range read(int place) const;
  // Windows that read pixels of a rank.
  ir::Range reaching(int place) const;

  // Whether padding alone makes its windows of a rank's own pixels: none of these is before the first window or begins
  // another one, and every window reads some of them.
  bool slides_over_own(int place) const;

  // The windows of a rank: `inner` read its own pixels alone. Each has some, so that all ranks do the same things.
  struct Split {
    ir::Range before, inner, after;
  };
  // Nothing where there are no inner ones, or they do not slide over the rank's own pixels.
  std::optional<Split> split(int place) const;
};

// Whether a dimension of an image may be sharded: every window must read some pixel.
bool may_shard(const Window& window);

void partition_conv2d(ir::PartitionContext& p);
// Both take a halo of dy and the rank's own rows of x, so that the exchange serves both. Where only the second is
// wanted, it may take a halo of x and the rank's own rows of dy.
void partition_conv2d_grad_input(ir::PartitionContext& p);
void partition_conv2d_grad_weight(ir::PartitionContext& p);

void partition_pool2d(ir::PartitionContext& p);
// The gradient of all that the rank's windows read; what belongs to other ranks goes back to them, and is summed there.
void partition_pool2d_grad(ir::PartitionContext& p);

}  // namespace trireme::ops
