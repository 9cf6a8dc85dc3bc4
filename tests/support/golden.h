#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::testing {

// A test that is two files: tests/golden/FOLDER/NAME.in.txt and what must come out of it, NAME.out.txt. Lines
// "// key=value" at the start of the input are options. UPDATE_GOLDENS=1 in the environment rewrites the outputs.
struct Golden {
  std::string name;
  std::filesystem::path in;
  std::filesystem::path out;
};
using GoldenOptions = std::map<std::string, std::string>;

// Of a folder that is not there: none.
std::vector<Golden> goldens(const std::string& folder);
GoldenOptions options_of(const std::string& text);

// Fails the test when `transform` of the input is not the output. An Error becomes "error: <message>".
void check_golden(const Golden& golden,
                  const std::function<std::string(const std::string& text, const GoldenOptions& options)>& transform);

// The option, removed from `options`, so that what is left over is a misspelt one.
std::string take(GoldenOptions& options, const std::string& key, const std::string& fallback);

}  // namespace trireme::testing
