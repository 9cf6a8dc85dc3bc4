#pragma once
#include <filesystem>
#include <string>

#include "trireme/io/hf_config.h"
#include "trireme/io/hf_weights.h"
#include "trireme/train/config.h"
#include "trireme/train/session.h"

namespace trireme::train {

// Hugging Face folders (config.json and safetensors), as init.from names them. The shape of the model is taken from
// config.json when a configuration is loaded; its weights are read where a session is at hand:
//
//   Config config = load_config("gpt2");                    // init.from = "gpt2", the shape from gpt2/config.json
//   …compile, Session session(…);
//   load_huggingface(config.init.from, session);            // the weights; then session.predict(…) is theirs
//
// A run may have fewer positions than the folder (model.context): a GPT-2 then has the first rows of the position
// embedding, a Llama the same weights.

// A folder with config.json that is not a run of ours.
bool is_huggingface_folder(const std::filesystem::path& folder);

// Sets every parameter of the session, and what is derived from them; optimizer states stay as they are, but for the
// masks of weights that come pruned where the run prunes too: their number is returned. Refuses weights that are not
// exactly the model's. The second form takes weights that were opened, and so checked, before.
std::size_t load_huggingface(const std::string& folder, Session& session);
std::size_t load_huggingface(const io::HfWeights& weights, Session& session);

}  // namespace trireme::train
