#include "trireme/train/stored_weight.h"

#include "trireme/core/error.h"
#include "trireme/ops/quantize/codes.h"

namespace trireme::train {
namespace {

struct Codes {
  const io::CheckpointTensor* codes = nullptr;
  const io::CheckpointTensor* scale = nullptr;
  ops::CodeFormat format;
  std::int64_t n = 0, k = 0;
};

// The types of codes and scales say which format they have.
Codes codes_of(const io::CheckpointReader& checkpoint, const std::string& name, const Shape& shape) {
  Codes c;
  c.codes = checkpoint.find(name + "/codes");
  if (c.codes == nullptr) checkpoint.at(name);  // refuses, with the nearest name
  c.scale = &checkpoint.at(name + "/scale");
  c.n = c.codes->type.shape[0];
  c.k = c.n == 0 ? 0 : shape.elements() / c.n;
  c.format.bits = c.codes->type.dtype == DType::i8 ? 8 : 4;
  const std::int64_t groups = c.scale->type.shape.back();
  if (groups > 1) c.format.group = c.k / groups;
  const bool fits = c.n * c.k == shape.elements() && groups > 0 && c.format.problem(c.k).empty() &&
                    c.codes->type == c.format.codes(c.n, c.k) && c.scale->type == c.format.scales(c.n, c.k);
  if (!fits)
    refuse("'{}' is {} with scales {}, which are no codes of {}", c.codes->name, c.codes->type.str(),
           c.scale->type.str(), shape.str());
  return c;
}

}  // namespace

void check_stored_weight(const io::CheckpointReader& checkpoint, const std::string& name, const Shape& shape) {
  const io::CheckpointTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    codes_of(checkpoint, name, shape);
    return;
  }
  if (const TensorType type{DType::f32, shape}; tensor->type != type)
    refuse("'{}' is {}, the model has {}", name, tensor->type.str(), type.str());
}

std::vector<float> stored_weight(const io::CheckpointReader& checkpoint, const std::string& name, const Shape& shape) {
  check_stored_weight(checkpoint, name, shape);
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  if (const io::CheckpointTensor* tensor = checkpoint.find(name)) {
    checkpoint.read(*tensor, std::as_writable_bytes(std::span(values)));
    return values;
  }
  const Codes c = codes_of(checkpoint, name, shape);
  std::vector<std::byte> codes(c.codes->type.bytes());
  std::vector<float> scale(static_cast<std::size_t>(c.scale->type.elements()));
  checkpoint.read(*c.codes, codes);
  checkpoint.read(*c.scale, std::as_writable_bytes(std::span(scale)));
  ops::dequantize_rows(codes.data(), scale.data(), c.n, c.k, c.format, values.data());
  return values;
}

}  // namespace trireme::train
