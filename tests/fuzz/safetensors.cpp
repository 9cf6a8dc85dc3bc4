#include "trireme/io/safetensors.h"

#include <algorithm>
#include <vector>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "trireme/core/error.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::fuzz {
namespace {

// From an allocation of its own size: a mapped file ends in a page of zeros, where reading too far goes unnoticed.
void header_alone(Input input) {
  constexpr std::size_t kLength = 8;
  if (input.size() < kLength) return;
  const Input text = input.subspan(kLength);
  try {
    io::parse_safetensors_header(text_of(text));
  } catch (const Error&) {  // most inputs are followed by data, which is no JSON
  }
}

}  // namespace

void safetensors(Input input) {
  header_alone(input);
  const MemoryFile file(input);
  const io::SafetensorsFile tensors(file.path());
  std::size_t bytes = 0;
  for (const auto& tensor : tensors.tensors()) {
    fail_if(tensors.find(tensor.name) != &tensor, "a tensor is not found under its name");
    const auto data = tensors.bytes(tensor);
    bytes += data.size();
    fail_if(data.size() != tensor.type.bytes(), "a tensor has other bytes than its type");
    if (!is_float(tensor.type.dtype)) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.type.elements()));
    tensors.read_f32(tensor, values);
  }
  fail_if(bytes > input.size(), "tensors hold more bytes than the file");
}

}  // namespace trireme::fuzz
