#include "trireme/io/sharded_safetensors.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/io/json_file.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A file of the folder itself: a name, not a way. Links are for the folder's owner to set.
void check_name(const std::string& name) {
  if (name.find('/') != std::string::npos || name.find('\\') != std::string::npos)
    refuse("weight_map names {}, which is not a file of this folder", for_message(name));
  if (name.find('\0') != std::string::npos || !name.ends_with(".safetensors"))
    refuse("weight_map names {}, which is not a .safetensors file", for_message(name));
}

}  // namespace

ShardedSafetensors::ShardedSafetensors(const std::string& folder) {
  std::error_code unknown;
  path_ = (fs::path(folder) / kSingle).string();
  if (fs::exists(path_, unknown)) {
    files_.emplace_back(path_);
    for (const auto& tensor : files_.front().tensors()) tensors_.emplace(tensor.name, Found{&files_.front(), &tensor});
    return;
  }
  path_ = (fs::path(folder) / kIndex).string();
  if (!fs::exists(path_, unknown)) {
    const bool pickle = fs::exists(fs::path(folder) / "pytorch_model.bin", unknown) ||
                        fs::exists(fs::path(folder) / "pytorch_model.bin.index.json", unknown);
    refuse("{} has neither {} nor {}{}", folder, kSingle, kIndex,
           pickle ? "; pytorch_model.bin can hold code and is not read: save the model with safetensors" : "");
  }
  try {
    open_index(folder);
  } catch (Error& e) {
    if (!e.message().starts_with(folder)) e.within(path_);
    throw;
  }
}

void ShardedSafetensors::open_index(const std::string& folder) {
  const nlohmann::json index = read_json_object(path_);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) refuse("weight_map must be an object of tensor names and files");
  std::map<std::string, std::vector<std::string>> listed;  // by file
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) refuse("weight_map: {} must name a file", for_message(name));
    check_name(file.get_ref<const std::string&>());
    listed[file.get<std::string>()].push_back(name);
  }
  if (listed.empty()) refuse("weight_map lists no tensors");
  files_.reserve(listed.size());  // tensors_ points into it
  for (const auto& [name, tensors] : listed) {
    const fs::path path = fs::path(folder) / name;
    if (!fs::exists(path)) refuse("weight_map names {}, which is not there", for_message(name));
    const SafetensorsFile& file = files_.emplace_back(path.string());
    for (const std::string& tensor : tensors) {
      if (file.find(tensor) == nullptr)
        refuse("weight_map says that {} holds {}, but it does not", name, for_message(tensor));
      tensors_.emplace(tensor, Found{&file, file.find(tensor)});
    }
  }
  for (const SafetensorsFile& file : files_)
    for (const auto& tensor : file.tensors()) {
      const auto known = tensors_.find(tensor.name);
      const std::string name = fs::path(file.path()).filename().string();
      if (known == tensors_.end())
        refuse("{} holds {}, which weight_map does not list", name, for_message(tensor.name));
      if (known->second.tensor != &tensor)
        refuse("{} holds {}, which weight_map says is in {}", name, for_message(tensor.name),
               fs::path(known->second.file->path()).filename().string());
    }
}

ShardedSafetensors::Found ShardedSafetensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Found{} : found->second;
}

}  // namespace trireme::io
