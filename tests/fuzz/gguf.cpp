#include "trireme/io/gguf.h"

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "trireme/io/gguf_names.h"
#include "trireme/models/families.h"

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
  ModelConfig model = io::gguf_model(file).model;
  const std::vector<io::GgufParameter> parameters = io::gguf_parameters(file, model);
  fail_if(parameters.size() + (file.find(io::kRopeFactors) == nullptr ? 0 : 1) != file.tensors().size(),
          "a tensor has no place in the model");
  for (const io::GgufParameter& parameter : parameters)
    io::from_gguf(parameter, file.read(parameter.theirs, parameter.stored));
  models::builtin_families().at(model.family).resolve(model, {});
}

}  // namespace trireme::fuzz
