#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::cli {

// What every pass left, in a folder of its own that lives as long as this: for `trireme inspect --after PASS`.
class PassListings {
 public:
  PassListings();
  ~PassListings();
  PassListings(const PassListings&) = delete;
  PassListings& operator=(const PassListings&) = delete;

  // For TrainerOptions::dump_passes.
  const std::filesystem::path& folder() const { return folder_; }

  // The module's text behind a graph pass, or that of one of `programs` behind a program pass; "model" is the module
  // that the passes begin with. `role` matters where roles differ. Refuses a pass that did not run.
  std::string after(const std::string& pass, const std::string& program, const std::vector<std::string>& programs,
                    const std::string& role) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace trireme::cli
