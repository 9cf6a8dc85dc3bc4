#pragma once
#include <string>
#include <vector>

#include "trireme/io/checkpoint_reader.h"

namespace trireme::train {

// A parameter of a checkpoint in f32: as it is, or what its codes stand for where memory.weights has stored it so.
// Refuses one that is not there or has another shape.
std::vector<float> stored_weight(const io::CheckpointReader& checkpoint, const std::string& name, const Shape& shape);
// The same checks, without reading.
void check_stored_weight(const io::CheckpointReader& checkpoint, const std::string& name, const Shape& shape);

}  // namespace trireme::train
