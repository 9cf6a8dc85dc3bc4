#include "trireme/io/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/shape.h"

namespace trireme::io {
namespace {

// A type that two names are read as is written under the first.
constexpr std::array<std::pair<std::string_view, DType>, 10> kTypes = {{{"F64", DType::f64},
                                                                        {"F32", DType::f32},
                                                                        {"F16", DType::f16},
                                                                        {"BF16", DType::bf16},
                                                                        {"I64", DType::i64},
                                                                        {"I32", DType::i32},
                                                                        {"U16", DType::u16},
                                                                        {"U8", DType::u8},
                                                                        {"I8", DType::i8},
                                                                        {"BOOL", DType::u8}}};

// Takes the header token by token, so that anything out of place is refused where it stands: a tree would first have to
// hold whatever a hostile header contains, and would silently drop a key given twice.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() {
    auto& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != tensors.end()) refuse("tensor {} appears twice", for_message(twice->name));
    return std::move(header_);
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::root;
    } else if (place_ == Place::root) {
      place_ = key_ == kMetadataKey ? Place::metadata : Place::tensor;
      tensor_ = {};
      tensor_.name = key_;
      given_ = {};
    } else {
      misplaced("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    if (place_ == Place::root && name == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) refuse("{} appears twice", kMetadataKey);
    } else if (place_ == Place::metadata && header_.metadata.contains(name)) {
      refuse("{}: key {} appears twice", kMetadataKey, for_message(name));
    } else if (place_ == Place::tensor) {
      const auto known = std::find(kFields.begin(), kFields.end(), name);
      if (known == kFields.end()) refuse("tensor {}: unknown key {}", for_message(tensor_.name), for_message(name));
      field_ = static_cast<std::size_t>(known - kFields.begin());
      if (std::exchange(given_[field_], true)) refuse("tensor {}: {} appears twice", for_message(tensor_.name), name);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (std::size_t i = 0; i < kFields.size(); ++i)
        if (!given_[i]) refuse("tensor {}: {} is missing", for_message(tensor_.name), kFields[i]);
      header_.tensors.push_back(std::move(tensor_));
    }
    place_ = place_ == Place::root ? Place::outside : Place::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || kFields[field_] == "dtype") misplaced("an array");
    place_ = Place::list;
    list_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    if (kFields[field_] == "shape") {
      tensor_.shape = list_;
    } else {
      if (list_.size() != 2) refuse("tensor {}: data_offsets must be two numbers", for_message(tensor_.name));
      tensor_.begin = list_[0];
      tensor_.end = list_[1];
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) misplaced("a number");
    if (list_.size() == Shape::kMaxRank)
      refuse("tensor {}: {} has more than {} numbers", for_message(tensor_.name), kFields[field_], Shape::kMaxRank);
    list_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata)
      header_.metadata.emplace(key_, std::move(value));
    else if (place_ == Place::tensor && kFields[field_] == "dtype")
      tensor_.dtype = std::move(value);
    else
      misplaced("a string");
    return true;
  }

  bool null() override { misplaced("null"); }
  bool boolean(bool) override { misplaced("a boolean"); }
  bool number_integer(number_integer_t) override { misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override { misplaced(for_message(text)); }
  bool binary(binary_t&) override { misplaced("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse("the header is not valid JSON: byte {}", position);
  }

 private:
  enum class Place { outside, root, metadata, tensor, list };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  [[noreturn]] void misplaced(std::string_view what) const {
    const std::string name = for_message(tensor_.name);
    switch (place_) {
      case Place::outside: refuse("the header must be a JSON object, not {}", what);
      case Place::root: refuse("{} must be an object, not {}", for_message(key_), what);
      case Place::metadata: refuse("{}: {} must be a string, not {}", kMetadataKey, for_message(key_), what);
      case Place::list: refuse("tensor {}: {} must hold whole numbers, not {}", name, kFields[field_], what);
      case Place::tensor: break;
    }
    refuse("tensor {}: {} must be {}, not {}", name, kFields[field_],
           kFields[field_] == "dtype" ? "a string" : "an array of whole numbers", what);
  }

  SafetensorsHeader header_;
  SafetensorsHeader::Tensor tensor_;
  Place place_ = Place::outside;
  std::string key_;
  std::size_t field_ = 0;
  std::array<bool, kFields.size()> given_{};
  std::vector<std::uint64_t> list_;
  bool has_metadata_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json) {
  // The JSON library skips a byte-order mark and takes a zero byte for the end of the text.
  if (json.empty() || json.front() != '{') refuse("the header does not begin with {{");
  if (const auto zero = json.find('\0'); zero != std::string_view::npos)
    refuse("the header is not valid JSON: byte {} is zero", zero + 1);
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [theirs, ours] : kTypes)
    if (theirs == name) return ours;
  return std::nullopt;
}

std::string_view safetensors_name_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes)
    if (ours == dtype) return theirs;
  fail("safetensors has no name for {}", name_of(dtype));
}

std::string json_quoted(std::string_view name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::type_error&) {
    fail("{} is not valid UTF-8", for_message(name));
  }
}

std::string for_message(std::string_view name) {
  constexpr std::size_t kShown = 200;
  const std::string cut(name.substr(0, kShown));
  return nlohmann::json(name.size() > kShown ? cut + "…" : cut)
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trireme::io
