#pragma once
#include <span>
#include <string>
#include <vector>

#include "trireme/core/option_names.h"

namespace trireme::data {

// What a user may not have meant by the text to train on and the text to evaluate on, as sentences: files that are
// named and whose bytes are no plain text (compressed, NumPy's, UTF-16, token files), files that are named twice, and
// files for evaluation that are trained on. Nothing is refused: any bytes can be learned. Files below folders are not
// looked into, which leave out what is no text by themselves.
std::vector<std::string> text_doubts(std::span<const std::string> text, std::span<const std::string> eval,
                                     const OptionNames& names);

}  // namespace trireme::data
