#include "trireme/io/hf_config.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/targets.h"

namespace trireme::fuzz {
namespace {

// One folder for the process, in memory where the system has such a place.
class Folder {
 public:
  Folder() {
    std::error_code unknown;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", unknown);
    path_ = std::string(in_memory ? "/dev/shm" : "/tmp") + "/trireme-fuzz-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void hf_config(Input input) {
  static const Folder folder;
  std::ofstream(folder.path() + "/config.json", std::ios::binary) << text_of(input);
  const io::HfConfig config = io::read_hf_config(folder.path());
  // What we export we read back.
  const std::string written = io::hf_config_json(config.model, DType::f32, "");
  std::ofstream(folder.path() + "/config.json", std::ios::binary) << written;
  const io::HfConfig again = io::read_hf_config(folder.path());
  fail_if(!(again.model == config.model), "a model does not survive export and import");
}

}  // namespace trireme::fuzz
