#include "trireme/io/safetensors_layout.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

constexpr std::size_t kHeaderLength = sizeof(std::uint64_t);
// Where the data begins: no element needs more, and a cache line is what kernels like.
constexpr std::size_t kDataAlignment = 64;

using NamedTypes = std::span<const std::pair<std::string, TensorType>>;

std::vector<std::size_t> order_of(NamedTypes tensors) {
  std::vector<std::size_t> order;
  for (const auto& [name, type] : tensors) {
    if (name == kMetadataKey) fail("a tensor cannot be named {}", kMetadataKey);
    order.push_back(order.size());
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].first < tensors[b].first; });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return tensors[a].first == tensors[b].first; });
  if (twice != order.end()) fail("tensor {} is given twice", for_message(tensors[*twice].first));
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype) > size_of(tensors[b].second.dtype);
  });
  return order;
}

}  // namespace

SafetensorsLayout lay_out_safetensors(NamedTypes tensors, const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  layout.order = order_of(tensors);
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    pairs.reserve(metadata.size());
    for (const auto& [key, value] : metadata) pairs.push_back(json_quoted(key) + ":" + json_quoted(value));
    entries.push_back(fmt::format(R"("{}":{{{}}})", kMetadataKey, fmt::join(pairs, ",")));
  }
  std::uint64_t offset = 0;
  for (const std::size_t i : layout.order) {
    const auto& [name, type] = tensors[i];
    const std::uint64_t end = offset + type.bytes();
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", json_quoted(name),
                                  safetensors_name_of(type.dtype), type.shape.str(), offset, end));
    offset = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
  const std::size_t past = (kHeaderLength + header.size()) % kDataAlignment;
  if (past != 0) header.append(kDataAlignment - past, ' ');
  if (header.size() > kMaxHeaderBytes) fail("the header would have {} bytes, above {}", header.size(), kMaxHeaderBytes);
  const std::uint64_t length = header.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), kHeaderLength);
  layout.head += header;
  layout.bytes = layout.head.size() + offset;
  return layout;
}

}  // namespace trireme::io
