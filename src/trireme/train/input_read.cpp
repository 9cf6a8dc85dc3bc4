#include "trireme/train/input_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

// What a node allows in an operand; nothing: it has no range, or the operand is no index.
std::optional<ir::IndexRange> range_of(const ir::Graph& graph, const ir::Node& node, std::size_t operand) {
  const ir::IndexOperand& index = node.op->index;
  if (index.operand != static_cast<int>(operand)) return std::nullopt;
  return index.range(graph.input_types(node), node.attributes);
}

void add_ranges(const ir::Graph& graph, ir::ValueId input, const std::string& name, IndexRanges& ranges) {
  std::set<ir::ValueId> same = {input};  // under other shapes
  for (const ir::Node& node : graph.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!same.contains(node.inputs[i])) continue;
      if (node.op->traits.view && i == 0) same.insert(node.outputs.front());
      const auto range = range_of(graph, node, i);
      if (!range) continue;
      ir::IndexRange& all = ranges.emplace(name, *range).first->second;
      all.below = std::min(all.below, range->below);
      all.negative = all.negative && range->negative;
    }
}

class CheckedIndices final : public data::Dataset {
 public:
  CheckedIndices(std::shared_ptr<const data::Dataset> data, IndexRanges ranges, std::string what)
      : data_(std::move(data)), ranges_(std::move(ranges)), what_(std::move(what)) {}

  std::int64_t samples() const override { return data_->samples(); }
  std::int64_t tokens_per_sample() const override { return data_->tokens_per_sample(); }
  void resize(data::Batch& batch, std::int64_t rows) const override { data_->resize(batch, rows); }
  data::DataMemory memory() const override { return data_->memory(); }
  const data::MixedDataset* mixed() const override { return data_->mixed(); }

  void read_common(data::Batch& batch) const override {
    data_->read_common(batch);
    if (const std::string wrong = wrong_index(ranges_, batch, kWholeInputs); !wrong.empty())
      fail("update {}: {}", batch.step, wrong);
  }

  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    data_->read(sample, row, batch);
    if (const std::string wrong = wrong_index(ranges_, batch, row); !wrong.empty())
      fail("{} {}: {}", what_, sample, wrong);
  }

 private:
  std::shared_ptr<const data::Dataset> data_;
  IndexRanges ranges_;
  std::string what_;
};

}  // namespace

std::optional<DType> input_read(const Compiled& compiled, std::string_view graph, std::string_view input) {
  for (const Role& role : compiled.roles) {
    if (!role.module.has_graph(graph)) continue;
    const ir::Graph& own = role.module.graph(graph);
    const auto value = own.find_input(input);
    const bool read = value && std::any_of(own.nodes.begin(), own.nodes.end(), [&](const ir::Node& node) {
                        return std::find(node.inputs.begin(), node.inputs.end(), *value) != node.inputs.end();
                      });
    if (read) return own.type(*value).dtype;
  }
  return std::nullopt;
}

IndexRanges index_ranges(const Compiled& compiled, std::string_view graph) {
  IndexRanges ranges;
  for (const Role& role : compiled.roles) {
    if (!role.module.has_graph(graph)) continue;
    const ir::Graph& own = role.module.graph(graph);
    for (const ir::ValueId input : own.inputs)
      if (own.type(input).dtype == DType::i32) add_ranges(own, input, own.value(input).name, ranges);
  }
  return ranges;
}

std::string wrong_index(const IndexRanges& ranges, const data::Batch& batch, std::int64_t row) {
  for (const data::NamedRows& input : batch.inputs) {
    const auto range = ranges.find(input.name);
    if (range == ranges.end() || input.integers.empty() || input.whole != (row == kWholeInputs)) continue;
    const auto& [below, negative] = range->second;
    const std::size_t each = input.integers.size() / static_cast<std::size_t>(input.whole ? 1 : batch.rows);
    const std::size_t first = input.whole ? 0 : static_cast<std::size_t>(row) * each;
    const std::span<const std::int32_t> values = std::span(input.integers).subspan(first, each);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] >= below || (values[i] < 0 && !negative))
        return fmt::format("input '{}', element {} is {}, and must be {} {}", input.name, i, values[i],
                           negative ? "at most" : "from 0 to", below - 1);
  }
  return {};
}

std::shared_ptr<const data::Dataset> with_checked_indices(std::shared_ptr<const data::Dataset> data, IndexRanges ranges,
                                                          const std::string& what) {
  data::Batch batch;
  if (data) data->resize(batch, 0);
  const bool any = std::any_of(batch.inputs.begin(), batch.inputs.end(),
                               [&](const data::NamedRows& input) { return ranges.contains(input.name); });
  if (!any) return data;
  return std::make_shared<CheckedIndices>(std::move(data), std::move(ranges), what);
}

}  // namespace trireme::train
