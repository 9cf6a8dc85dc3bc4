#include "trireme/train/overwritten.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/data/find_files.h"
#include "trireme/train/convert.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Where `input` leads, in `run` (which is canonical), by whichever links: the removal of one of them counts as well.
bool leads_through(const fs::path& run, const fs::path& input, int links) {
  constexpr int kMaxLinks = 40;  // as the system has it
  std::error_code unknown;
  fs::path at;
  for (const fs::path& part : fs::absolute(input, unknown)) {
    at /= part;
    const fs::path inside = at.lexically_relative(run);
    if (!inside.empty() &&
        std::find(kOverwritten.begin(), kOverwritten.end(), inside.begin()->string()) != kOverwritten.end())
      return true;
    if (fs::is_symlink(at, unknown) && links < kMaxLinks &&
        leads_through(run, at.parent_path() / fs::read_symlink(at, unknown), links + 1))
      return true;
    if (fs::path real = fs::weakly_canonical(at, unknown); !unknown) at = std::move(real);
  }
  return false;
}

// The files and folders that a text of data.text and its kin names.
std::vector<fs::path> named_by(const std::string& text, const std::string& key) {
  std::vector<fs::path> paths;
  try {
    for (const data::WeightedPattern& one : data::parse_weights({&text, 1}, key)) {
      if (data::is_glob(one.pattern))
        for (const std::string& file : data::find_files(one.pattern, key)) paths.emplace_back(file);
      else
        paths.emplace_back(one.pattern);
    }
  } catch (const Error&) {
    // Refused where the data are opened.
  }
  return paths;
}

}  // namespace

bool is_overwritten(const fs::path& folder, const fs::path& input) {
  std::error_code unknown;
  const fs::path run = fs::weakly_canonical(folder, unknown);
  if (leads_through(run, input, 0)) return true;
  // A folder that has one of the files, by a link or by being the run's.
  const bool own = fs::weakly_canonical(input, unknown) == run;
  for (const fs::directory_entry& entry : fs::directory_iterator(input, unknown))
    if ((own || entry.is_symlink(unknown)) && leads_through(run, entry.path(), 0)) return true;
  return false;
}

void check_inputs_stay(const fs::path& folder, const Config& config) {
  std::error_code unknown;
  const fs::path run = fs::weakly_canonical(folder, unknown);
  const auto check = [&](const char* key, const std::string& value, const fs::path& path, bool model) {
    if (value.empty()) return;
    if (model && fs::weakly_canonical(path, unknown) == run)
      refuse("{} = \"{}\" is the folder that the run would be written to; name another output.dir", key, value);
    if (is_overwritten(folder, path))
      refuse(
          "{} = \"{}\" is in part where the run would be written ({}), and would be replaced; name another output.dir",
          key, value, folder.string());
  };
  check("distil.teacher", config.distil.teacher, config.distil.teacher, true);
  check("init.from", config.init.from, config.init.from, true);
  const data::DataConfig& data = config.data;
  for (const auto& [key, texts] :
       {std::pair{"data.text", data.text}, std::pair{"data.tokens", data.tokens},
        std::pair{"data.images", std::vector{data.images}}, std::pair{"data.eval", data.eval}})
    for (const std::string& text : texts)
      for (const fs::path& path : named_by(text, key)) check(key, text, path, false);
  check("data.tokenizer", data.tokenizer, data.tokenizer, false);
  // The tokenizer of a folder is copied into the run.
  const fs::path tokenizer = fs::weakly_canonical(data.tokenizer, unknown);
  if (!config.init.from.empty() && tokenizer.parent_path() == run && is_tokenizer_file(tokenizer.filename().string()))
    refuse("data.tokenizer = \"{}\" would be replaced by that of init.from = \"{}\"; name another output.dir",
           data.tokenizer, config.init.from);
}

}  // namespace trireme::train
