#include "trireme/io/checkpoint_manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/io/checksum.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

using Document = nlohmann::json;

constexpr std::string_view kBeforeChecksum = ",\n\"checksum\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kEndBytes = kBeforeChecksum.size() + kDigits + kAfterChecksum.size();

std::string line_of(const CheckpointTensor& tensor) {
  std::vector<std::string> slices;
  slices.reserve(tensor.slices.size());
  for (const CheckpointSlice& s : tensor.slices) {
    const std::string entry = s.number == 0 ? "" : fmt::format(R"("number":{},)", s.number);
    slices.push_back(fmt::format(R"({{"file":{},{}"start":{},"extent":{},"checksum":"{}"}})", json_quoted(s.file),
                                 entry, s.start.str(), s.extent.str(), checksum_text(s.checksum)));
  }
  return fmt::format(R"({}: {{"dtype":"{}","shape":{},"role":{},"slices":[{}]}})", json_quoted(tensor.name),
                     safetensors_name_of(tensor.type.dtype), tensor.type.shape.str(), json_quoted(tensor.role),
                     fmt::join(slices, ","));
}

const Document& member(const Document& object, const char* key, Document::value_t type, const char* expected) {
  const auto found = object.find(key);
  if (found == object.end()) refuse("\"{}\" is missing", key);
  const bool fits = found->type() == type || (type == Document::value_t::number_integer && found->is_number_integer());
  if (!fits) refuse("\"{}\" must be {}", key, expected);
  return *found;
}

const Document& object_of(const Document& parent, const char* key) {
  return member(parent, key, Document::value_t::object, "an object");
}

std::string text_of(const Document& object, const char* key) {
  return member(object, key, Document::value_t::string, "a string").get<std::string>();
}

std::int64_t natural(const Document& value, const char* key) {
  // nlohmann would wrap numbers above the signed range.
  if (!value.is_number_integer() || value < 0 ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62))
    refuse("\"{}\" must hold whole numbers of at least 0", key);
  return value.get<std::int64_t>();
}

std::int64_t natural_of(const Document& object, const char* key) {
  return natural(member(object, key, Document::value_t::number_integer, "a whole number"), key);
}

Shape shape_of(const Document& object, const char* key) {
  const Document& values = member(object, key, Document::value_t::array, "an array");
  if (values.size() > Shape::kMaxRank) refuse("\"{}\" has more than {} numbers", key, Shape::kMaxRank);
  Shape shape;
  for (const Document& value : values) shape.push_back(natural(value, key));
  return shape;
}

std::uint64_t checksum_of(const Document& object, const char* key) {
  const auto value = parse_checksum(text_of(object, key));
  if (!value) refuse("\"{}\" must be {} hexadecimal digits", key, kDigits);
  return *value;
}

// Two boxes share an element.
bool overlap(const CheckpointSlice& a, const CheckpointSlice& b) {
  for (int d = 0; d < a.start.rank(); ++d)
    if (a.start[d] >= b.start[d] + b.extent[d] || b.start[d] >= a.start[d] + a.extent[d]) return false;
  return true;
}

std::string place(const CheckpointSlice& s) {
  return fmt::format("the slice of {} at {} with extents {}", s.file, s.start.str(), s.extent.str());
}

// Slices that lie in the tensor, do not overlap and have as many elements as it tile it.
void check_tiling(const CheckpointTensor& tensor) {
  // All as boxes of the tensor, or all as some of its rows.
  const Shape shape =
      tensor.slices.empty() ? tensor.type.shape : sliced_shape(tensor.slices.front(), tensor.type.shape);
  std::vector<const CheckpointSlice*> slices;
  for (const CheckpointSlice& s : tensor.slices) {
    if (s.start.rank() != shape.rank() || s.extent.rank() != shape.rank())
      refuse("{} does not have the {} dimensions of {}", place(s), shape.rank(), shape.str());
    for (int d = 0; d < shape.rank(); ++d)
      if (s.extent[d] > shape[d] || s.start[d] > shape[d] - s.extent[d])
        refuse("{} does not lie in {}", place(s), shape.str());
    if (s.extent.elements() > 0) slices.push_back(&s);
  }
  std::sort(slices.begin(), slices.end(), [](const auto* a, const auto* b) {
    return std::lexicographical_compare(a->start.begin(), a->start.end(), b->start.begin(), b->start.end());
  });
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const CheckpointSlice& a = *slices[i];
    for (std::size_t j = i + 1; j < slices.size(); ++j) {
      const CheckpointSlice& b = *slices[j];
      if (shape.rank() > 0 && b.start[0] >= a.start[0] + a.extent[0]) break;
      if (overlap(a, b)) refuse("{} overlaps {}", place(b), place(a));
    }
    covered += a.extent.elements();
  }
  if (covered != tensor.type.elements())
    refuse("its slices cover {} of its {} elements", covered, tensor.type.elements());
}

CheckpointTensor tensor_of(const std::string& name, const Document& entry,
                           const std::map<std::string, CheckpointFile>& files, bool all) {
  CheckpointTensor tensor;
  tensor.name = name;
  const auto dtype = dtype_of_safetensors(text_of(entry, "dtype"));
  if (!dtype) refuse("dtype {} is not known", for_message(text_of(entry, "dtype")));
  tensor.type = {*dtype, shape_of(entry, "shape")};
  std::int64_t bytes = static_cast<std::int64_t>(size_of(*dtype));
  for (const std::int64_t extent : tensor.type.shape)
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) refuse("its shape is too large");
  tensor.role = text_of(entry, "role");
  std::set<std::pair<std::string, int>> seen;
  for (const Document& slice : member(entry, "slices", Document::value_t::array, "an array")) {
    if (!slice.is_object()) refuse("\"slices\" must hold objects");
    CheckpointSlice s{text_of(slice, "file"), shape_of(slice, "start"), shape_of(slice, "extent"),
                      checksum_of(slice, "checksum"),
                      slice.contains("number") ? static_cast<int>(natural_of(slice, "number")) : 0};
    if (!files.contains(s.file)) refuse("{}: the file is not listed in \"files\"", for_message(s.file));
    if (!seen.emplace(s.file, s.number).second) refuse("{} holds two slices of it", for_message(s.file));
    tensor.slices.push_back(std::move(s));
  }
  if (all) check_tiling(tensor);
  return tensor;
}

void check_file_name(const std::string& name) {
  const bool plain = !name.empty() && name.find_first_of("/\\") == std::string::npos && !name.starts_with('.') &&
                     name.find('\0') == std::string::npos;
  if (!plain || name == kManifestFile) refuse("{} cannot be the name of a file of tensors", for_message(name));
}

void check_format(std::int64_t format) {
  if (format < kOldestCheckpointFormat || format > kCheckpointFormat)
    refuse("has format {}; this version reads formats {} to {}", format, kOldestCheckpointFormat, kCheckpointFormat);
}

// Text from before the checksum was there says its format plainly; other text has been damaged.
[[noreturn]] void no_checksum(std::string_view text) {
  const Document json = Document::parse(text, nullptr, false);
  if (json.is_object() && json.contains("format") && json["format"].is_number_integer())
    check_format(json["format"].get<std::int64_t>());
  refuse("does not end in its checksum: it is cut short or damaged");
}

std::string parts_text(const CheckpointManifest& m) {
  std::vector<std::string> files;
  for (const auto& [name, file] : m.files)
    files.push_back(
        fmt::format(R"({}: {{"bytes":{},"header":"{}"}})", json_quoted(name), file.bytes, checksum_text(file.header)));
  std::vector<std::string> tensors;
  tensors.reserve(m.tensors.size());
  for (const CheckpointTensor& tensor : m.tensors) tensors.push_back(line_of(tensor));
  return fmt::format("\"files\": {{\n{}\n}},\n\"tensors\": {{\n{}\n}}", fmt::join(files, ",\n"),
                     fmt::join(tensors, ",\n"));
}

void read_parts(const Document& json, CheckpointManifest& m, bool all) {
  for (const auto& [name, entry] : object_of(json, "files").items()) {
    check_file_name(name);
    if (!entry.is_object()) refuse("file {} must be an object", for_message(name));
    m.files[name] = {static_cast<std::uint64_t>(natural_of(entry, "bytes")), checksum_of(entry, "header")};
  }
  for (const auto& [name, entry] : object_of(json, "tensors").items()) {
    try {
      if (!entry.is_object()) refuse("must be an object");
      m.tensors.push_back(tensor_of(name, entry, m.files, all));
    } catch (Error& e) {
      throw e.within("tensor " + for_message(name));
    }
  }
}

}  // namespace

std::string slice_entry(const std::string& tensor, int number) {
  return number == 0 ? tensor : fmt::format("{}#{}", tensor, number);
}

std::string fragment_text(const CheckpointManifest& manifest) { return "{" + parts_text(manifest) + "}"; }

CheckpointManifest parse_fragment(std::string_view text) {
  const Document json = Document::parse(text, nullptr, false);
  if (!json.is_object()) refuse("is not a JSON object");
  CheckpointManifest m;
  read_parts(json, m, false);
  return m;
}

std::string manifest_text(const CheckpointManifest& m) {
  std::string text = fmt::format(
      "{{\n\"format\": {},\n\"step\": {},\n\"data\": {{\"samples\":{},\"order\":{}}},\n"
      "\"random\": {{\"kind\":\"counter\",\"seed\":{},\"step\":{}}},\n\"config\": {},\n{}{}",
      kCheckpointFormat, m.step, m.samples, json_quoted(m.order), m.seed, m.step, json_quoted(m.config),
      m.algorithms.empty() ? "" : fmt::format("\"algorithms\": {},\n", json_quoted(m.algorithms)), parts_text(m));
  const std::string sum = checksum_text(checksum(text));
  return text.append(kBeforeChecksum).append(sum).append(kAfterChecksum);
}

CheckpointManifest parse_manifest(std::string_view text) {
  if (text.size() < kEndBytes || !text.ends_with(kAfterChecksum)) no_checksum(text);
  const std::string_view body = text.substr(0, text.size() - kEndBytes);
  const std::string_view end = text.substr(body.size());
  const auto expected = parse_checksum(end.substr(kBeforeChecksum.size(), kDigits));
  if (!end.starts_with(kBeforeChecksum) || !expected) no_checksum(text);
  if (checksum(body) != *expected) refuse("its checksum does not match: it is damaged");

  const Document json = Document::parse(text, nullptr, false);
  if (!json.is_object()) refuse("is not a JSON object");
  CheckpointManifest m;
  check_format(natural_of(json, "format"));
  m.step = natural_of(json, "step");
  const Document& data = object_of(json, "data");
  m.samples = natural_of(data, "samples");
  m.order = text_of(data, "order");
  const Document& random = object_of(json, "random");
  if (text_of(random, "kind") != "counter") refuse("random numbers of kind {}", for_message(text_of(random, "kind")));
  m.seed = member(random, "seed", Document::value_t::number_integer, "a whole number").get<std::int64_t>();
  if (natural_of(random, "step") != m.step) refuse("\"random\" is of another step than the checkpoint");
  m.config = text_of(json, "config");
  if (json.contains("algorithms")) m.algorithms = text_of(json, "algorithms");
  read_parts(json, m, true);
  return m;
}

CheckpointManifest read_manifest(const std::filesystem::path& folder) {
  const std::string path = (folder / kManifestFile).string();
  const MappedFile file(path);
  const auto bytes = file.bytes();
  try {
    return parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (Error& e) {
    throw e.within(path);
  }
}

}  // namespace trireme::io
