#include "trireme/io/gguf.h"

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "trireme/io/gguf_names.h"

namespace trireme::fuzz {

void gguf(Input input) {
  const MemoryFile memory(input);
  const io::GgufFile file(memory.path());
  for (const io::GgufTensor& tensor : file.tensors()) {
    fail_if(file.find(tensor.name) == nullptr, "a tensor is not found under its name");
    const std::vector<float> values = file.read(tensor.name, tensor.shape);
    fail_if(static_cast<std::int64_t>(values.size()) != tensor.shape.elements(),
            "a tensor has other elements than its shape");
    // Of 256 elements, the fewest bytes of any type are 72.
    fail_if(values.size() > 4 * input.size(), "tensors hold more elements than the file");
  }
  // What an import does with it.
  const ModelConfig model = io::gguf_model(file);
  for (const io::GgufParameter& parameter : io::gguf_parameters(model))
    if (file.find(parameter.theirs) != nullptr) io::from_gguf(parameter, file.read(parameter.theirs, parameter.stored));
}

}  // namespace trireme::fuzz
