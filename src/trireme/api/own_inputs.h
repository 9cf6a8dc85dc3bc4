#pragma once
#include <trireme/data.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/models/model.h"

namespace trireme {

// Samples [first, last) of data whose inputs have names of their own. `data` has own samples with `write`.
std::shared_ptr<const data::Dataset> open_inputs(const Data& data, std::int64_t first, std::int64_t last);

// The inputs of such data as models know them. Refuses names that are taken or given twice, and shapes without
// elements.
std::vector<models::Input> inputs_of(const Data& data);

// One row of them all but the targets, as a model is asked for its predictions; zeros where one is not given that its
// predictions do not read. Refuses, with the nearest name, what is missing, unknown or of another type or size.
data::Batch one_row(const std::vector<models::Input>& inputs, const NamedInputs& values,
                    const std::function<bool(const std::string& name)>& is_read);

}  // namespace trireme
