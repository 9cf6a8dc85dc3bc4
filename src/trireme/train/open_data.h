#pragma once
#include "trireme/data/dataset.h"
#include "trireme/train/config.h"

namespace trireme::train {

// The data of a configuration, in the shape that its model reads. Image files state what the configuration leaves
// open: `config` gets their size, channels and classes.
// `use` is for the message where there is none: "train on".
data::Data open_data(Config& config, const models::Families& families, const data::OpenOptions& options = {},
                     const char* use = "train on");

// What to warn of where model.document_end is a token that the first samples do not have; nothing otherwise.
std::string documents_warning(const Config& config, const data::Data& data);

}  // namespace trireme::train
