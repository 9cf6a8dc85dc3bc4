#include "trireme/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;
constexpr std::uint64_t kMaxEntries = std::uint64_t{1} << 31;  // of lists, keys and tensors in a file that is sound

// Numbers of the kinds of values.
enum class Kind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };

std::uint64_t aligned(std::uint64_t offset, std::uint64_t to) { return (offset + to - 1) / to * to; }

// ---- writing

class Out {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void kind(Kind kind) { number(static_cast<std::uint32_t>(kind)); }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    text_ += text;
  }
  void pad() { text_.resize(aligned(text_.size(), kAlignment)); }
  const std::string& bytes() const { return text_; }

 private:
  std::string text_;
};

void put(Out& out, const GgufValue& value) {
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, bool>) {
          out.kind(Kind::boolean);
          out.number(static_cast<std::uint8_t>(v));
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.kind(Kind::text);
          out.text(v);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          out.kind(Kind::list);
          out.kind(Kind::text);
          out.number(static_cast<std::uint64_t>(v.size()));
          for (const std::string& text : v) out.text(text);
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          out.kind(Kind::list);
          out.kind(Kind::i32);
          out.number(static_cast<std::uint64_t>(v.size()));
          for (const std::int64_t n : v) out.number(static_cast<std::int32_t>(n));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          out.kind(Kind::list);
          out.kind(Kind::f32);
          out.number(static_cast<std::uint64_t>(v.size()));
          for (const double n : v) out.number(static_cast<float>(n));
        } else {
          out.kind(std::is_same_v<T, std::uint32_t>   ? Kind::u32
                   : std::is_same_v<T, std::int32_t>  ? Kind::i32
                   : std::is_same_v<T, std::uint64_t> ? Kind::u64
                   : std::is_same_v<T, std::int64_t>  ? Kind::i64
                   : std::is_same_v<T, float>         ? Kind::f32
                                                      : Kind::f64);
          out.number(v);
        }
      },
      value);
}

// ---- reading

class In {
 public:
  In(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) refuse("{}: ends within its header; the file is cut short", path_);
    const auto part = bytes_.subspan(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return part;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t count(const char* of) {
    const auto number_of = number<std::uint64_t>();
    if (number_of > kMaxEntries) refuse("{}: {} {} are more than a file has; it is damaged", path_, number_of, of);
    return number_of;
  }
  std::string text() {
    const auto bytes = take(count("bytes of a text"));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::uint64_t position() const { return at_; }

  GgufValue value(Kind kind) {
    switch (kind) {
      case Kind::u8: return std::uint32_t{number<std::uint8_t>()};
      case Kind::i8: return std::int32_t{number<std::int8_t>()};
      case Kind::u16: return std::uint32_t{number<std::uint16_t>()};
      case Kind::i16: return std::int32_t{number<std::int16_t>()};
      case Kind::u32: return number<std::uint32_t>();
      case Kind::i32: return number<std::int32_t>();
      case Kind::f32: return number<float>();
      case Kind::boolean: return number<std::uint8_t>() != 0;
      case Kind::text: return text();
      case Kind::u64: return number<std::uint64_t>();
      case Kind::i64: return number<std::int64_t>();
      case Kind::f64: return number<double>();
      case Kind::list: return list();
    }
    refuse("{}: a value of an unknown kind {}", path_, static_cast<std::uint32_t>(kind));
  }

 private:
  GgufValue list() {
    const auto kind = static_cast<Kind>(number<std::uint32_t>());
    const std::uint64_t size = count("entries of a list");
    if (kind == Kind::list) refuse("{}: a list of lists, which this version does not read", path_);
    if (kind == Kind::text) {
      std::vector<std::string> texts;
      for (std::uint64_t i = 0; i < size; ++i) texts.push_back(text());
      return texts;
    }
    std::vector<std::int64_t> integers;
    std::vector<double> numbers;
    for (std::uint64_t i = 0; i < size; ++i)
      std::visit(
          [&]<class T>(const T& v) {
            if constexpr (std::is_floating_point_v<T>)
              numbers.push_back(static_cast<double>(v));
            else if constexpr (std::is_integral_v<T>)
              integers.push_back(static_cast<std::int64_t>(v));
          },
          value(kind));
    if (!numbers.empty()) return numbers;
    return integers;
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace

void write_gguf(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                const std::function<std::vector<float>(std::size_t)>& values) {
  Out out;
  for (const char c : kMagic) out.number(c);
  out.number(kVersion);
  out.number(static_cast<std::uint64_t>(tensors.size()));
  out.number(static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    out.text(key);
    put(out, value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    TRI_CHECK(tensor.shape.back() % block_elements(tensor.type) == 0, "{} has rows of {}", tensor.name,
              tensor.shape.back());
    out.text(tensor.name);
    out.number(static_cast<std::uint32_t>(tensor.shape.rank()));
    for (int d = tensor.shape.rank(); d-- > 0;) out.number(static_cast<std::uint64_t>(tensor.shape[d]));
    out.number(static_cast<std::uint32_t>(tensor.type));
    out.number(offset);
    offset = aligned(offset + ggml_bytes(tensor.type, tensor.shape.elements()), kAlignment);
  }
  out.pad();
  AtomicFile file(path);
  file.write(out.bytes());
  std::vector<std::byte> bytes;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::vector<float> elements = values(t);
    TRI_CHECK(static_cast<std::int64_t>(elements.size()) == tensors[t].shape.elements(), "{}", tensors[t].name);
    const std::size_t size = ggml_bytes(tensors[t].type, tensors[t].shape.elements());
    bytes.assign(aligned(size, kAlignment), std::byte{0});
    encode_blocks(tensors[t].type, elements, std::span(bytes).first(size));
    file.write(bytes);
  }
  file.commit();
}

GgufFile::GgufFile(const std::string& path) : path_(path), file_(path) {
  In in(path_, file_.bytes());
  if (file_.bytes().size() < 24 || std::memcmp(in.take(4).data(), kMagic.data(), 4) != 0)
    refuse("{}: not a GGUF file", path);
  const auto version = in.number<std::uint32_t>();
  if (version != 2 && version != kVersion) refuse("{}: GGUF version {}; this version reads 2 and 3", path, version);
  const std::uint64_t tensors = in.count("tensors"), keys = in.count("keys");
  for (std::uint64_t k = 0; k < keys; ++k) {
    std::string key = in.text();
    const auto kind = static_cast<Kind>(in.number<std::uint32_t>());
    const auto [entry, is_new] = metadata_.try_emplace(std::move(key), in.value(kind));
    if (!is_new) refuse("{}: the key {} is there twice", path, for_message(entry->first));
  }
  for (std::uint64_t t = 0; t < tensors; ++t) {
    GgufTensor tensor;
    tensor.name = in.text();
    const auto rank = in.number<std::uint32_t>();
    if (rank < 1 || rank > 4) refuse("{}: '{}' has {} dimensions; 1 to 4 are possible", path, tensor.name, rank);
    std::vector<std::int64_t> extents(rank);
    for (std::uint32_t d = rank; d-- > 0;) extents[d] = static_cast<std::int64_t>(in.count("elements of a dimension"));
    // Of no type are there more than two elements in a byte: a product beyond that would be wrong before it is large.
    std::uint64_t elements = 1;
    for (const std::int64_t extent : extents) {
      const auto own = static_cast<std::uint64_t>(extent);
      if (own == 0) refuse("{}: '{}' has a dimension without elements", path, tensor.name);
      if (own > 2 * file_.bytes().size() / elements)
        refuse("{}: '{}' lies beyond the end of the file, which is cut short", path, tensor.name);
      elements *= own;
    }
    tensor.shape = Shape(extents);
    const auto number = in.number<std::uint32_t>();
    const auto type = known_ggml_type(number);
    if (!type)
      refuse("{}: '{}' has type {}, which this version does not read; f32, f16, bf16, q8_0, q4_0 and q4_k it does",
             path, tensor.name, number);
    tensor.type = *type;
    if (tensor.shape.back() % block_elements(tensor.type) != 0)
      refuse("{}: rows of '{}' have {} elements, no whole blocks of {}", path, tensor.name, tensor.shape.back(),
             name_of(tensor.type));
    offsets_.push_back(in.number<std::uint64_t>());
    if (!by_name_.emplace(tensor.name, tensors_.size()).second)
      refuse("{}: the tensor {} is there twice", path, for_message(tensor.name));
    tensors_.push_back(std::move(tensor));
  }
  const std::int64_t given = has("general.alignment") ? integer("general.alignment") : std::int64_t{kAlignment};
  if (given < 1) refuse("{}: general.alignment is {}", path, given);
  const auto alignment = static_cast<std::uint64_t>(given);
  const std::uint64_t begin = aligned(in.position(), alignment);
  const std::uint64_t size = file_.bytes().size();
  std::map<std::uint64_t, std::size_t> lies_at;  // by where it begins: the tensor
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (offsets_[t] % alignment != 0)
      refuse("{}: '{}' begins at byte {} of the data, which is no multiple of general.alignment = {}", path,
             tensors_[t].name, offsets_[t], alignment);
    offsets_[t] += begin;
    const std::uint64_t bytes = ggml_bytes(tensors_[t].type, tensors_[t].shape.elements());
    if (offsets_[t] < begin || offsets_[t] > size || bytes > size - offsets_[t])
      refuse("{}: '{}' lies beyond the end of the file, which is cut short", path, tensors_[t].name);
    const auto [other, is_new] = lies_at.emplace(offsets_[t], t);
    if (!is_new) refuse("{}: '{}' and '{}' overlap", path, tensors_[other->second].name, tensors_[t].name);
  }
  for (auto next = lies_at.begin(); next != lies_at.end();) {
    const auto [at, t] = *next++;
    const std::uint64_t end = at + ggml_bytes(tensors_[t].type, tensors_[t].shape.elements());
    if (next != lies_at.end() && next->first < end)
      refuse("{}: '{}' and '{}' overlap", path, tensors_[t].name, tensors_[next->second].name);
  }
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::vector<float> GgufFile::read(const std::string& name, const Shape& shape) const {
  const GgufTensor* tensor = find(name);
  if (tensor == nullptr) refuse("{}: there is no tensor '{}'", path_, name);
  if (tensor->shape != shape)
    refuse("{}: '{}' is {}, the model needs {}", path_, name, tensor->shape.str(), shape.str());
  file_.check_whole();
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  const auto at = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(tensor - tensors_.data())]);
  decode_blocks(tensor->type, file_.bytes().subspan(at, ggml_bytes(tensor->type, shape.elements())), values);
  return values;
}

template <class T>
const T& GgufFile::value(const std::string& key, const char* kind) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) refuse("{}: there is no key '{}'", path_, key);
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) refuse("{}: '{}' is not {}", path_, key, kind);
  return *value;
}

double GgufFile::number(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) refuse("{}: there is no key '{}'", path_, key);
  return std::visit(
      [&]<class T>(const T& v) -> double {
        if constexpr (std::is_arithmetic_v<T>)
          return static_cast<double>(v);
        else
          refuse("{}: '{}' is not a number", path_, key);
      },
      found->second);
}

std::int64_t GgufFile::integer(const std::string& key) const {
  const double value = number(key);
  if (value != std::floor(value) || std::abs(value) > 9e15) refuse("{}: '{}' is not a whole number", path_, key);
  return static_cast<std::int64_t>(value);
}

const std::string& GgufFile::text(const std::string& key) const { return value<std::string>(key, "a text"); }
const std::vector<std::string>& GgufFile::texts(const std::string& key) const {
  return value<std::vector<std::string>>(key, "a list of texts");
}

}  // namespace trireme::io
