#include "trireme/io/hf_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

using Found = ShardedSafetensors::Found;

// Elements converted between two moments of letting go of the file's pages. Reading one page maps some around it, also
// ones let go of before, so the pieces are far larger than pages.
constexpr std::int64_t kPiece = std::int64_t{1} << 20;

template <class T>
float element(const std::byte* bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return static_cast<float>(value);
}

template <class T>
void convert(const Found& from, std::span<float> out) {
  const std::byte* bytes = from.file->bytes(*from.tensor).data();
  const auto count = static_cast<std::int64_t>(out.size());
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const std::int64_t last = std::min(count, first + kPiece);
    for (std::int64_t i = first; i < last; ++i) out[static_cast<std::size_t>(i)] = element<T>(bytes, i);
    from.file->release(*from.tensor, first, last - first);
  }
}

// out[column, row] = stored[row, column], in bands of rows that a cache holds.
template <class T>
void convert_transposed(const Found& from, std::span<float> out) {
  const std::byte* bytes = from.file->bytes(*from.tensor).data();
  const std::int64_t rows = from.tensor->type.shape[0];
  const std::int64_t columns = from.tensor->type.shape[1];
  constexpr std::int64_t kBand = 16;  // floats of a cache line
  std::int64_t held = 0;              // the first row whose pages were not let go of
  for (std::int64_t band = 0; band < rows; band += kBand) {
    const std::int64_t end = std::min(rows, band + kBand);
    for (std::int64_t column = 0; column < columns; ++column)
      for (std::int64_t row = band; row < end; ++row)
        out[static_cast<std::size_t>(column * rows + row)] = element<T>(bytes, row * columns + column);
    if ((end - held) * columns < kPiece && end < rows) continue;
    from.file->release(*from.tensor, held * columns, (end - held) * columns);
    held = end;
  }
}

// A block of a matrix of `rows` × `columns`, which is stored as it is or transposed.
template <class T>
void convert_block(const Found& from, bool transposed, const Shape& matrix, const ir::Slice& block,
                   std::span<float> out) {
  const std::byte* bytes = from.file->bytes(*from.tensor).data();
  const std::int64_t columns = matrix.rank() == 2 ? matrix[1] : 1;
  const std::int64_t first_column = matrix.rank() == 2 ? block.start[1] : 0;
  const std::int64_t width = matrix.rank() == 2 ? block.extent[1] : 1;
  std::size_t next = 0;
  for (std::int64_t row = block.start[0]; row < block.start[0] + block.extent[0]; ++row)
    for (std::int64_t column = first_column; column < first_column + width; ++column)
      out[next++] = element<T>(bytes, transposed ? column * matrix[0] + row : row * columns + column);
}

bool same_bytes(const Found& a, const Found& b) {
  const auto left = a.file->bytes(*a.tensor);
  const auto right = b.file->bytes(*b.tensor);
  if (a.tensor->type != b.tensor->type) return false;
  const std::int64_t count = a.tensor->type.elements();
  const std::size_t size = size_of(a.tensor->type.dtype);
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const std::int64_t part = std::min(count - first, kPiece);
    const std::size_t offset = static_cast<std::size_t>(first) * size;
    if (std::memcmp(left.data() + offset, right.data() + offset, static_cast<std::size_t>(part) * size) != 0)
      return false;
    a.file->release(*a.tensor, first, part);
    b.file->release(*b.tensor, first, part);
  }
  return true;
}

// The tensors of the model. There cannot be more layers than tensors: what config.json claims is not made names for
// before.
std::vector<HfTensor> expected(const ShardedSafetensors& files, const ModelConfig& model) {
  if (model.layers > std::ssize(files.tensors()))
    refuse("{}: config.json describes {} layers, and there are {} tensors in all", files.path(), model.layers,
           files.tensors().size());
  return hf_tensors(model);
}

bool is_storage_type(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace

HfWeights::HfWeights(const std::string& folder, const ModelConfig& model)
    : files_(folder), tensors_(expected(files_, model)) {
  try {
    check(model);
  } catch (Error& e) {
    throw e.within(files_.path());
  }
}

void HfWeights::check(const ModelConfig& model) {
  const std::string prefix(hf_prefix(model));
  // A folder of the bare model has no prefix; its first parameter tells.
  const std::string first = tensors_.front().theirs;
  const bool bare = !files_.find(first) && files_.find(first.substr(prefix.size()));
  std::vector<std::string> missing;
  std::set<std::string> known;
  for (HfTensor& tensor : tensors_) {
    if (bare && tensor.theirs.starts_with(prefix)) tensor.theirs.erase(0, prefix.size());
    known.insert(tensor.theirs);
    const Found found = files_.find(tensor.theirs);
    if (!found) {
      missing.push_back(tensor.theirs);
      continue;
    }
    const TensorType& type = found.tensor->type;
    if (!(type.shape == tensor.stored))
      refuse("{} has the shape {}, but config.json makes it {}", tensor.theirs, type.shape.str(), tensor.stored.str());
    if (!is_storage_type(type.dtype))
      refuse("{} is {}; weights must be F32, F16 or BF16", tensor.theirs, safetensors_name_of(type.dtype));
    by_name_[tensor.ours] = {&tensor, found};
  }
  if (!missing.empty())
    refuse("{} of the model's {} tensors {} missing: {}{}", missing.size(), tensors_.size(),
           missing.size() == 1 ? "is" : "are", missing.front(), missing.size() == 1 ? "" : ", …");
  const std::string head(hf_head());
  for (const auto& [name, found] : files_.tensors()) {
    if (known.contains(name)) continue;
    std::string_view inner = name;
    if (inner.starts_with(prefix)) inner.remove_prefix(prefix.size());
    if (is_hf_buffer(model, inner)) continue;
    if (name != head)
      refuse("{} is no part of the {} of {} layers that config.json describes", for_message(name), model.family,
             model.layers);
    if (!same_bytes(found, files_.find(tensors_.front().theirs)))
      refuse("{} differs from {}, but config.json has tie_word_embeddings = true", head, tensors_.front().theirs);
  }
}

void HfWeights::read(const std::string& ours, const Shape& shape, std::span<float> out) const {
  read(ours, shape, ir::all_of(shape), out);
}

void HfWeights::read(const std::string& ours, const Shape& shape, const ir::Slice& slice, std::span<float> out) const {
  const auto known = by_name_.find(ours);
  if (known == by_name_.end()) fail("{} has no counterpart for '{}'", files_.path(), ours);
  const auto& [tensor, found] = known->second;
  const bool fits = shape.rank() == tensor->shape.rank() &&
                    static_cast<std::int64_t>(out.size()) == slice.extent.elements() &&
                    shape.slice(1, shape.rank()) == tensor->shape.slice(1, shape.rank()) &&
                    (shape[0] == tensor->shape[0] || (shape[0] < tensor->shape[0] && !tensor->transposed));
  if (!fits)
    fail("{}: {} holds {}, the model has {} for '{}'", files_.path(), tensor->theirs, tensor->shape.str(), shape.str(),
         ours);
  const DType dtype = found.tensor->type.dtype;
  found.file->verify(*found.tensor);
  dispatch_compute(dtype, [&, from = found, transposed = tensor->transposed](auto zero) {
    using T = decltype(zero);
    if (slice.extent.elements() != shape.elements())
      convert_block<T>(from, transposed, shape.as_rows(), ir::in_rows(slice, shape), out);
    else if (transposed)
      convert_transposed<T>(from, out);
    else
      convert<T>(from, out);
  });
}

}  // namespace trireme::io
