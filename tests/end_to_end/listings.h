#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "support/source_dir.h"
#include "trireme/core/text.h"

namespace trireme::testing {

struct Listing {
  std::vector<std::string> arguments;
  std::string output;
};

// Blocks of a page of docs/ (or another, from there) that begin with "$ trireme …" or "$ ./trireme …": the command, and
// what it prints. `scripts/update_listings` writes those of docs/ anew.
inline std::vector<Listing> listings(const std::string& page) {
  std::ifstream in(source_dir() + "/docs/" + page);
  std::vector<Listing> found;
  bool fenced = false, first = false, listed = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      fenced = first = !fenced;
      listed = false;
      continue;
    }
    if (first && (line.starts_with("$ trireme ") || line.starts_with("$ ./trireme "))) {
      found.push_back({split(line.substr(line.find("trireme ") + std::string("trireme ").size()), ' '), ""});
      listed = true;
    } else if (listed) {
      found.back().output += line + "\n";
    }
    first = false;
  }
  return found;
}

}  // namespace trireme::testing
