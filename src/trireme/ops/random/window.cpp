#include "trireme/ops/random/window.h"

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/slice.h"

namespace trireme::ops {
namespace {

std::vector<std::int64_t> extents(const Shape& shape) { return {shape.begin(), shape.end()}; }

}  // namespace

RandomWindow::RandomWindow(const ir::Attributes& attributes) {
  first_ = attributes.integer("first");
  const std::vector<std::int64_t>& whole = attributes.integers("whole");
  const std::vector<std::int64_t>& block = attributes.integers("block");
  const std::vector<std::int64_t>& dims = attributes.integers("shift_dims");
  const std::vector<std::int64_t>& by = attributes.integers("shift_by");
  rank_ = static_cast<int>(whole.size());
  shifts_ = static_cast<int>(dims.size());
  std::copy(whole.begin(), whole.end(), whole_);
  std::copy(block.begin(), block.end(), block_);
  const std::vector<std::int64_t>& start = attributes.integers("start");
  std::copy(start.begin(), start.end(), start_);
  std::copy(dims.begin(), dims.end(), dims_);
  std::copy(by.begin(), by.end(), by_);
}

void add_window(std::vector<ir::AttributeSpec>& attributes) {
  for (const char* name : {"whole", "block", "shift_dims", "shift_by", "start"})
    attributes.push_back({name, std::vector<std::int64_t>()});
  attributes.push_back({"first", std::int64_t{0}});
}

void check_window(const ir::Attributes& attributes, std::size_t places) {
  const std::vector<std::int64_t>& whole = attributes.integers("whole");
  const std::vector<std::int64_t>& block = attributes.integers("block");
  const std::vector<std::int64_t>& dims = attributes.integers("shift_dims");
  const std::vector<std::int64_t>& by = attributes.integers("shift_by");
  if (whole.size() != block.size() || whole.size() > RandomWindow::kMaxRank)
    fail("'whole' and 'block' must have the same number of dimensions, at most {}; got {} and {}",
         RandomWindow::kMaxRank, whole.size(), block.size());
  if (const std::vector<std::int64_t>& start = attributes.integers("start"); !start.empty()) {
    if (start.size() != whole.size()) fail("'start' must name {} numbers, got {}", whole.size(), start.size());
    for (const std::int64_t first : start)
      if (first < 0) fail("'start' must have no negative number, got {}", first);
  }
  if (dims.size() != places || by.size() != places || places > RandomWindow::kMaxShifts)
    fail("'shift_dims' and 'shift_by' must name {} numbers, one for each place, got {} and {}", places, dims.size(),
         by.size());
  for (std::size_t i = 0; i < places; ++i)
    if (dims[i] < Shift::kRows || dims[i] >= static_cast<std::int64_t>(whole.size()) || by[i] < 0)
      fail("a place cannot shift dimension {} of a tensor of {} by {}", dims[i], whole.size(), by[i]);
  for (std::size_t d = 0; d < whole.size(); ++d)
    if (whole[d] < 0 || block[d] < 1) fail("'whole' and 'block' must have no negative or empty extent");
  if (attributes.integer("first") < 0) fail("'first' must not be negative, got {}", attributes.integer("first"));
}

ir::Attributes in_shard(const ir::Attributes& attributes, const Shape& whole, const Shape& block, const Shape& shape,
                        std::span<const Shift> shifts) {
  std::vector<std::int64_t> dims = attributes.integers("shift_dims");
  std::vector<std::int64_t> by = attributes.integers("shift_by");
  for (const Shift& shift : shifts) {
    dims.push_back(shift.dim);
    by.push_back(shift.by);
  }
  ir::Attributes changed{{"whole", extents(whole)}, {"block", extents(block)}, {"shift_dims", dims}, {"shift_by", by}};
  if (attributes.find("shape") != nullptr) changed.set("shape", extents(shape));
  return changed;
}

ir::Attributes partition_window(ir::PartitionContext& context, std::size_t output, std::vector<ir::ValueId>& inputs,
                                int from) {
  const Shape whole = context.whole_output(output).shape;
  const Shape block = context.local_output(output).shape;
  std::vector<Shift> shifts;
  std::vector<std::int64_t> start(static_cast<std::size_t>(whole.rank() - from), 0);
  bool fixed = false;
  for (int d = from; d < whole.rank(); ++d) {
    const std::vector<std::string>& axes = context.output_axes(output, d);
    if (axes.size() == 1 && ir::is_spatial(axes.front())) {
      const int ranks = context.size_of(axes.front());
      start[static_cast<std::size_t>(d - from)] =
          ir::spatial_shard(whole[d], ranks, context.fixed_place(axes.front())).first;
      fixed = true;
      continue;
    }
    std::int64_t by = block[d];
    for (std::size_t a = axes.size(); a-- > 0;) {
      inputs.push_back(context.place(axes[a]));
      shifts.push_back({d - from, by});
      by *= context.size_of(axes[a]);
    }
  }
  ir::Attributes changed =
      in_shard(context.attributes(), whole.slice(from, whole.rank()), block.slice(from, block.rank()), block, shifts);
  if (fixed) changed.set("start", start);
  return changed;
}

}  // namespace trireme::ops
