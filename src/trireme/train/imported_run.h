#pragma once
#include <functional>
#include <vector>

#include "trireme/io/shard_writer.h"
#include "trireme/train/convert.h"

namespace trireme::train {

// Refuses a folder that the run cannot have, before anything is read.
void check_import_target(const std::filesystem::path& run, const ImportOptions& options);

// The run folder of weights that came from elsewhere: configuration, checkpoint of step 0, and whatever `more` writes
// while the folder is locked. `from` is for run.json.
void write_imported(const Config& config, const std::filesystem::path& run, const ImportOptions& options,
                    const std::string& from, std::vector<io::ShardTensor> tensors, const std::function<void()>& more);

}  // namespace trireme::train
